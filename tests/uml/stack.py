"""What the scripts beside this file stand on: a server that gets SIGKILL, and its devices as disks of this machine.

    script ─ file system ─ /dev/nbdN ─ `plimsoll block attach` ─ `plimsoll serve` ─ directories in memory
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

VOLUME = """
[volume.{name}]
path = "{name}"
contract = "unlimited"
"""
POOL = """
[pool.{name}]
volumes = {volumes}
{layout}
"""
SETTINGS = """
[block]
pool = "main"
listen = "127.0.0.1:{port}"

[admin]
listen = "127.0.0.1:{admin}"
"""
# Of the kernel's log: an I/O that failed, or a file system that found something wrong.
FAILURES = ("i/o error", "ext4-fs error", "double reply", "corrupt", "metadata error", "shutting down filesystem")


def pool(name, volumes, layout):
    """The settings of a pool."""
    return POOL.format(name=name, volumes=json.dumps(list(volumes)), layout=layout)


def run(*words, **more):
    """Runs a program; fails with its output if it fails."""
    words = [str(word) for word in words]
    ran = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if ran.returncode:
        sys.exit(f"{' '.join(words)}: status {ran.returncode}\n{ran.stdout[-2000:]}")
    return ran.stdout


def status(*words):
    """Runs a program that may fail, without its output."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.run([str(word) for word in words], **quiet).returncode


def place():
    """A new directory in memory."""
    return Path(tempfile.mkdtemp(prefix="plimsoll-", dir="/dev/shm"))


def kernel_failures(device=""):
    """Lines of the kernel's log that tell of failures, of one device or of all."""
    lines = [line for line in run("dmesg").splitlines() if Path(device).name in line]
    return [line for line in lines if any(failure in line.lower() for failure in FAILURES)][:10]


def drop_caches():
    """What is read from here on comes from the devices."""
    run("sync")
    Path("/proc/sys/vm/drop_caches").write_text("3")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Server:
    """An NBD server in the foreground, started again after each SIGKILL."""

    def __init__(self, line, port, directory):
        self.line, self.port, self.directory = line, port, directory
        self.away = []  # seconds from each kill until the server took connections again
        atexit.register(lambda: self.process.kill())
        self.start()

    def start(self):
        with open(self.directory / "server.log", "ab") as log:
            self.process = subprocess.Popen(self.line, cwd=self.directory, stdout=log, stderr=log)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", self.port)) as probe:
                    if probe.recv(8) == b"NBDMAGIC":
                        return
            except OSError:
                pass
            time.sleep(0.005)
        sys.exit(f"the server did not start; its last words:\n{self.log()[-3000:]}")

    def kill(self, down=0):
        """SIGKILL, `down` seconds of nothing, and a start. Returns the seconds until it took connections again."""
        began = time.monotonic()
        self.process.kill()
        self.process.wait()
        time.sleep(down)
        self.start()
        self.away.append(time.monotonic() - began)
        return self.away[-1]

    def stop(self):
        """An orderly end."""
        self.process.terminate()
        if self.process.wait(60):
            sys.exit(f"the server ended with status {self.process.returncode}; its last words:\n{self.log()[-3000:]}")

    @contextmanager
    def log_on_error(self):
        """Prints the last words of the server and of `attach` when what is inside fails."""
        try:
            yield
        except BaseException:
            for path in sorted(self.directory.glob("*.log")):
                print(f"{path.name}:\n{path.read_text(errors='replace')[-3000:]}", file=sys.stderr)
            print("\n".join(kernel_failures()), file=sys.stderr)
            raise

    def log(self):
        return (self.directory / "server.log").read_text(errors="replace")


class Plimsoll(Server):
    """`plimsoll serve` on directories in memory. The pool of its devices is `main`, on these volumes unless `pools` has it."""

    def __init__(self, program, directory, layout="copies = 2", volumes=("a", "b"), pools=None):
        port, self.admin = free_port(), free_port()
        self.program = os.path.abspath(program)
        for name in volumes:
            (directory / name).mkdir(exist_ok=True)
        text = "".join(VOLUME.format(name=name) for name in volumes)
        text += pools or pool("main", volumes, layout)
        text += SETTINGS.format(port=port, admin=self.admin)
        (directory / "plimsoll.toml").write_text(text)
        super().__init__([self.program, "serve", "-c", "plimsoll.toml"], port, directory)

    def block(self, *words):
        return run(self.program, "block", *words, "--admin", f"127.0.0.1:{self.admin}")

    def volume(self, *words):
        return run(self.program, "volume", *words, "-c", "plimsoll.toml", cwd=self.directory)

    def tier(self, *words):
        return run(self.program, "tier", *words, "-c", "plimsoll.toml", cwd=self.directory)

    def try_tier(self, *words):
        """Why it was refused; `None` if it was not."""
        words = [self.program, "tier", *words, "-c", "plimsoll.toml"]
        ran = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.directory)
        return ran.stdout.strip() if ran.returncode else None

    def health(self):
        """Whether it is healthy, and what it says."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/health") as answer:
                return True, json.load(answer)
        except urllib.error.HTTPError as answer:
            return False, json.load(answer)

    def room(self, name):
        """Bytes that the device's extents take at most, on one copy."""
        return int(self.metric("plimsoll_block_device_room_bytes", f'device="{name}"'))

    def tokens(self):
        """Operations that the gates of all volumes have admitted since the server's start, in tokens, by class."""
        classes = ("foreground", "commit", "urgent", "background", "idle")
        return {kind: int(self.metric("plimsoll_gate_granted_tokens_total", f'class="{kind}"')) for kind in classes}

    def samples(self, family, label):
        """The samples of a family with this label: words and values."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return [(line, float(line.split()[-1])) for line in lines if line.startswith(family + "{") and label in line]

    def metric(self, family, label):
        """The sum of a family's samples with this label."""
        return sum(value for _, value in self.samples(family, label))

    def metrics(self, family, label):
        """The sums of a family's samples, by this label."""
        sums = Counter()
        for line, value in self.samples(family, f'{label}="'):
            sums[line.split(f'{label}="')[1].split('"')[0]] += value
        return sums


class Disk:
    """A device of the server as a disk of this machine, until it is detached."""

    def __init__(self, program, server, name, path, *more):
        self.words = [program, "block", "attach", name, path, "--server", f"127.0.0.1:{server.port}", *more]
        self.program, self.path, self.directory = program, path, server.directory
        self.attach()

    def attach(self):
        with open(self.directory / "attach.log", "ab") as log:
            self.relay = subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=log, text=True)
        if not self.relay.stdout.readline().startswith("attached"):
            sys.exit(f"attach ended:\n{(self.directory / 'attach.log').read_text()[-3000:]}")

    def kill_relay(self):
        """SIGKILL of `attach`, and a new one."""
        self.relay.send_signal(signal.SIGKILL)
        self.relay.wait()
        self.attach()

    def detach(self):
        run(self.program, "block", "detach", self.path)
        if self.relay.wait(60):
            sys.exit(f"attach ended with status {self.relay.returncode}")


def report(figures, failures):
    """Prints the figures as JSON; ends with 1 if there were failures."""
    print(json.dumps(figures | {"failures": failures}, indent=1), flush=True)
    sys.exit(1 if failures else 0)
