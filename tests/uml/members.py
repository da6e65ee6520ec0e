"""The volumes of a server, which are lost and replaced."""

import fcntl
import os
import re
import shutil
import struct
import sys
import time

from stack import run

# EXT4_IOC_SHUTDOWN, without a flush of the journal: from then on all that is asked of the file system is an I/O error.
SHUTDOWN, NO_FLUSH = 0x8004587D, 2
# Seconds of a green `/health` after a start, by which the server knows of every loss.
QUIET = 15


class Members:
    """The volumes of one of the server's pools: of `pool`, or of the only one."""

    def __init__(self, server, pool=None):
        self.server, self.pool = server, pool
        self.logged = 0  # bytes of the log before the last loss

    def lose(self, *names):
        """Deletes the directories of volumes, at once: nothing is made in them meanwhile."""
        self.logged = len(self.server.log())
        for name in names:
            self.path(name).rename(self.path(f"gone-{name}"))
        for name in names:
            shutil.rmtree(self.path(f"gone-{name}"))

    def replace(self, name, new):
        """Adds a volume in an empty directory, and removes the one that was lost."""
        self.make(new)
        pool = ["--pool", self.pool] if self.pool else []
        self.server.volume("add", new, "--path", self.path(new), "--contract", "unlimited", *pool, "--write")
        self.remove(name)

    def remove(self, name):
        self.server.volume("remove", name, "--write")

    def make(self, name):
        self.path(name).mkdir()

    def unmake(self, name):
        shutil.rmtree(self.path(name))

    def path(self, name):
        return self.server.directory / name

    def wait_until_healthy(self, seconds=120):
        """The seconds until `/health` is green; ends the script if it does not become so."""
        return self.wait(lambda said: said[0], self.server.health, seconds)

    def wait_until_whole(self, promise, seconds=120):
        """The seconds until the log says that every object has what the pool promises again. `/health` counts what is short, but
        a moment after a loss it does not know of it yet. A server that was killed right after its last repair says nothing: then it
        has to be green for some seconds."""
        said = re.compile(rf"(every object has|have fewer than) {re.escape(promise)}( again|;)")
        green = None

        def is_whole(log):
            nonlocal green
            told = said.findall(log.rpartition("\nready: ")[2] if "\nready: " in log else log)
            if told:
                return told[-1][0] == "every object has"
            is_green = "\nready: " in log and self.server.health()[0]
            green = (green or time.monotonic()) if is_green else None
            return green is not None and time.monotonic() - green > QUIET

        return self.wait(is_whole, lambda: self.server.log()[self.logged :], seconds)

    def wait(self, is_done, look, seconds):
        began, said = time.monotonic(), None
        while time.monotonic() - began < seconds:
            said = look()
            if is_done(said):
                return round(time.monotonic() - began, 2)
            time.sleep(0.1)
        sys.exit(f"it lasts longer than {seconds} s: {str(said)[-3000:]}")


class Disks(Members):
    """Volumes that are file systems on disks of their own, which fail as a disk does that is pulled out: open files, too."""

    def make(self, name):
        mount_disk(self.path(name))

    def lose(self, *names):
        self.logged = len(self.server.log())
        for name in names:
            top = os.open(self.path(name), os.O_RDONLY)
            fcntl.ioctl(top, SHUTDOWN, struct.pack("I", NO_FLUSH))
            os.close(top)

    def remove(self, name):
        super().remove(name)
        unmount_disk(self.path(name))

    def unmake(self, name):
        unmount_disk(self.path(name))


def mount_disk(path, size="256M"):
    """Mounts a new file system on a disk of its own here, in the place of one that may be there."""
    if path.is_mount():
        unmount_disk(path)
    path.mkdir(exist_ok=True)
    image = image_of(path)
    run("truncate", "-s", size, image)
    run("mkfs.ext4", "-q", image)
    run("mount", "-o", "loop", image, path)


def unmount_disk(path):
    """Takes it away, also while somebody uses it."""
    run("umount", "--lazy", path)
    image_of(path).unlink()


def image_of(path):
    return path.with_name(f"{path.name}.img")
