"""Small ext4 file systems on block devices, and their faults. Needs root."""

import contextlib
import errno
import fcntl
import os
import struct
import subprocess
import time

SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
NO_LOG_FLUSH = struct.pack("I", 2)
FIBMAP, FIGETBSZ = 1, 2


class Unavailable(Exception):
    """This machine provides no loop devices."""


def run(*command):
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode != 0:
        raise Unavailable(f"{' '.join(map(str, command))}: {ran.stderr.strip()}")
    return ran.stdout.strip()


class Loop:
    """A loop device over an image. It has no faults of its own."""

    def __init__(self, image):
        self.device = run("losetup", "--find", "--show", "--direct-io=on", image)

    def heal(self):
        pass

    def resume(self):
        pass

    def close(self):
        subprocess.run(["losetup", "--detach", self.device], capture_output=True)


class Volume:
    """One mounted file system on a disk (`Loop`, `Served` or `Mapped`); the server gets the directory `path` on it."""

    def __init__(self, directory, name, mib, disk=Loop):
        self.name, self.mib = name, mib
        self.image, self.root = directory / f"{name}.image", directory / name
        self.path = self.root / "data"
        self.disk, self.mounted, self.frozen, self.is_broken = None, False, False, False
        with open(self.image, "wb") as image:
            os.posix_fallocate(image.fileno(), 0, mib << 20)
        try:
            self.disk = disk(self.image)
            quiet = "lazy_itable_init=0,lazy_journal_init=0"
            run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", quiet, self.disk.device)
            self.root.mkdir()
            self.mount()
            self.path.mkdir()
        except BaseException:
            self.close()
            raise

    def mount(self):
        if self.mounted:
            return
        if self.is_broken:
            # Its exit status says which repairs it made.
            subprocess.run(["e2fsck", "-f", "-y", self.disk.device], capture_output=True)
            self.is_broken = False
        run("mount", self.disk.device, self.root)
        self.mounted = True

    def unmount(self):
        """Unmounts it, after its last user: a killed process may take a moment to release its files."""
        self.calm()
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

    def fail_some(self, random):
        """Blocks of up to three files, and those behind them, cannot be read or written until the disk is healed."""
        files = [path for path in self.path.rglob("*") if path.is_file()]
        ranges = []
        for path in random.sample(files, min(len(files), random.randint(1, 3))):
            with contextlib.suppress(OSError), open(path, "rb") as file:
                (block,) = struct.unpack("i", fcntl.ioctl(file, FIGETBSZ, struct.pack("i", 0)))
                logical = random.randrange(os.fstat(file.fileno()).st_size // block + 1)
                (physical,) = struct.unpack("i", fcntl.ioctl(file, FIBMAP, struct.pack("i", logical)))
                if physical:
                    first = physical * block
                    ranges.append((first, min(first + (4096 << random.randint(0, 11)), self.mib << 20)))
        self.disk.fail(ranges)
        return ranges

    def works(self):
        """Whether the file system takes a write: it goes read-only where its own blocks failed."""
        try:
            with open(self.root / "probe", "wb") as probe:
                probe.write(b"probe")
                probe.flush()
                os.fsync(probe.fileno())
            os.unlink(self.root / "probe")
            return True
        except OSError:
            self.is_broken = True
            return False

    def calm(self):
        """Ends faults of the device, and a freeze."""
        if self.disk:
            self.disk.heal()
            self.disk.resume()
        self.thaw()

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
        if self.disk:
            self.disk.close()
            self.disk = None
