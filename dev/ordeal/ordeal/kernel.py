"""Runs `mixed` in User-Mode Linux, a kernel with device mapper that is an ordinary process; the host needs no modules.

Debian's package has kernel and modules. The guest's root is the host's, read-only: it has the program, Python and dmsetup
of the host. Images are in the guest's memory. Results go to a directory of the host that the guest mounts.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from ordeal.device import Unavailable

CACHE = Path.home() / ".cache/plimsoll/user-mode-linux"
MEMORY_MIB = 3072
# Beside the minutes of load: the boot, a fault that is under way, and the last check of all data.
EXTRA_MAX = 900


def fetch():
    """Debian's package, unpacked but not installed; the directory it is in."""
    if not (CACHE / "usr/bin/linux.uml").exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as place:
            subprocess.run(["apt-get", "download", "-qq", "user-mode-linux"], cwd=place, check=True)
            subprocess.run(["dpkg", "-x", *Path(place).glob("*.deb"), CACHE], check=True)
    return CACHE


def run(options):
    """Boots, runs, and prints the guest's JSON document; whether it was good."""
    if not shutil.which("dmsetup"):
        raise Unavailable("no dmsetup: apt-get install dmsetup")
    top = fetch()
    results = Path(tempfile.mkdtemp(prefix="plimsoll-ordeal-", dir=options.dir))
    package = Path(__file__).resolve().parents[1]
    seed = [] if options.seed is None else ["--seed", str(options.seed)]
    words = ["mixed", "--mapper", "--dir", "/mnt", "--minutes", str(options.minutes), *seed]
    words += ["--rate", str(options.rate), "--timeout", str(options.timeout)]
    words += ["--program", str(Path(options.program).resolve()), "--only", options.only]
    words += ["--apart"] if options.apart else []
    init = results / "init"
    init.write_text(
        f"#!/bin/sh\nPYTHONPATH={package} exec {sys.executable} -m ordeal.guest {top} {results} "
        + " ".join(f"'{word}'" for word in words) + "\n"
    )
    init.chmod(0o755)
    command = [
        top / "usr/bin/linux.uml", f"mem={MEMORY_MIB}M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro",
        "loglevel=3", "con=null", "con0=null,fd:1", f"init={init}",
    ]
    last = max(os.sched_getaffinity(0))
    guest = subprocess.Popen(
        # The guest's threads pass requests to each other: on one processor that takes half the time.
        ["taskset", "-c", str(last), *command], stdin=subprocess.DEVNULL, stdout=sys.stderr,
        start_new_session=True, env={**os.environ, "TMPDIR": "/dev/shm"},
    )
    try:
        guest.wait(options.minutes * 60 + EXTRA_MAX)
    except subprocess.TimeoutExpired:
        print("the guest did not end", file=sys.stderr)
    finally:
        guest.kill()
        # What the guest's processes are on this side is in the group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(guest.pid, signal.SIGKILL)
        guest.wait()
    status = results / "status"
    if not status.exists():
        raise Unavailable(f"the guest ended before the run; see {results}")
    print((results / "json").read_text(), end="", flush=True)
    if status.read_text() == "0":
        shutil.rmtree(results)
        return True
    print(f"kept {results}", file=sys.stderr)
    return False
