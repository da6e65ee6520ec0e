"""The first process of the guest of `ordeal.kernel`: prepares it, runs, and powers it off."""

import ctypes
import os
import platform
import resource
import shutil
import subprocess
import sys
from pathlib import Path

FINIT_MODULE = 313  # on x86-64
POWER_OFF = 0x4321FEDC
# The kernel's own limit is 4,096; a service manager gives at least this much.
FILES_MAX = 65536
LIBC = ctypes.CDLL(None, use_errno=True)


def load(package, name):
    modules = package / "usr/lib/uml/modules" / platform.release()
    (path,) = modules.rglob(f"{name}.ko")
    with open(path, "rb") as module:
        if LIBC.syscall(FINIT_MODULE, module.fileno(), b"", 0):
            print(f"{name}: {os.strerror(ctypes.get_errno())}", flush=True)


def prepare(package, results):
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_MAX, FILES_MAX))
    os.environ.update(PATH="/usr/sbin:/usr/bin:/sbin:/bin", HOME="/root", DM_DISABLE_UDEV="1")
    for kind, where in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tmpfs", "/run"), ("tmpfs", "/mnt")]:
        subprocess.run(["mount", "-t", kind, "-o", "size=60%" if where == "/mnt" else "defaults", kind, where])
    subprocess.run(["mount", "-t", "hostfs", "-o", results, "none", "/media"])
    subprocess.run(["ip", "link", "set", "lo", "up"])
    for name in ["loop", "dm-mod", "dm-dust"]:
        load(package, name)


def main():
    package, results, *words = sys.argv[1:]
    prepare(Path(package), results)
    with open("/media/json", "w") as out:
        status = subprocess.run([sys.executable, "-m", "ordeal", *words], stdout=out).returncode
    for kept in Path("/mnt").glob("plimsoll-ordeal-*/*"):
        if kept.name in ("log", "plimsoll.toml"):
            shutil.copy(kept, "/media")
    Path("/media/status").write_text(str(status))


try:
    main()
finally:
    os.sync()
    LIBC.reboot(POWER_OFF)
