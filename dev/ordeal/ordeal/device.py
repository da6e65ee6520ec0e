"""Small ext4 file systems on loop devices, and their faults. Needs root."""

import contextlib
import errno
import fcntl
import os
import struct
import subprocess
import time

SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
NO_LOG_FLUSH = struct.pack("I", 2)


class Unavailable(Exception):
    """This machine provides no loop devices."""


def run(*command):
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode != 0:
        raise Unavailable(f"{' '.join(map(str, command))}: {ran.stderr.strip()}")
    return ran.stdout.strip()


class Volume:
    """One mounted file system; the server gets the directory `path` on it."""

    def __init__(self, directory, name, mib):
        self.name, self.mib = name, mib
        self.image, self.root = directory / f"{name}.image", directory / name
        self.path = self.root / "data"
        self.device, self.mounted, self.frozen = None, False, False
        with open(self.image, "wb") as image:
            os.posix_fallocate(image.fileno(), 0, mib << 20)
        try:
            self.device = run("losetup", "--find", "--show", "--direct-io=on", self.image)
            quiet = "lazy_itable_init=0,lazy_journal_init=0"
            run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", quiet, self.device)
            self.root.mkdir()
            self.mount()
            self.path.mkdir()
        except BaseException:
            self.close()
            raise

    def mount(self):
        if not self.mounted:
            run("mount", self.device, self.root)
            self.mounted = True

    def unmount(self):
        """Unmounts it, after its last user: a killed process may take a moment to release its files."""
        self.thaw()
        end = time.monotonic() + 20
        while self.mounted:
            try:
                run("umount", self.root)
                self.mounted = False
            except Unavailable:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def bytes(self):
        """The space of the file system for files, in bytes."""
        of = os.statvfs(self.root)
        return of.f_blocks * of.f_frsize

    def free(self):
        of = os.statvfs(self.root)
        return of.f_bavail * of.f_frsize

    def fill(self, leave=0):
        """Another program takes all space but `leave` bytes."""
        take = self.free() - leave
        with open(self.root / "foreign", "ab") as foreign:
            while take > 4096:
                try:
                    os.posix_fallocate(foreign.fileno(), os.fstat(foreign.fileno()).st_size, take)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                take = min(take // 2, self.free() - leave)

    def take_inodes(self):
        """Another program takes every inode."""
        inodes = self.root / "inodes"
        inodes.mkdir(exist_ok=True)
        for number in range(os.statvfs(self.root).f_ffree):
            try:
                os.close(os.open(inodes / str(number), os.O_CREAT | os.O_WRONLY))
            except OSError:
                return

    def give_back(self):
        """The other program removes its files."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.root / "foreign")
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self.root / "inodes"):
                os.unlink(self.root / "inodes" / name)
            os.rmdir(self.root / "inodes")

    def freeze(self):
        """Every write hangs until `thaw`."""
        run("fsfreeze", "-f", self.root)
        self.frozen = True

    def thaw(self):
        if self.frozen:
            run("fsfreeze", "-u", self.root)
            self.frozen = False

    def kill(self):
        """Every call fails until the file system is mounted again; only flushed bytes survive."""
        root = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.ioctl(root, SHUTDOWN, NO_LOG_FLUSH)
        finally:
            os.close(root)

    def close(self):
        with contextlib.suppress(Unavailable):
            self.unmount()
        if self.mounted:
            subprocess.run(["umount", "-l", self.root], capture_output=True)
        if self.device:
            subprocess.run(["losetup", "--detach", self.device], capture_output=True)
            self.device = None
