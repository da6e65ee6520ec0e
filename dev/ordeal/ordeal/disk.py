"""A block device whose blocks fail, and which hangs, at will: a loop device over a file that this module serves by FUSE.

The kernel needs neither device mapper nor modules for it. `python3 -m ordeal.disk IMAGE FILE` serves the image as the
file and takes commands, a line each, on standard input: `bad FIRST END` (bytes), `good`, `hang`, `resume`. It ends with
its input.
"""

import ctypes
import errno
import fcntl
import os
import select
import struct
import subprocess
import sys
import time

from ordeal.device import Unavailable, run

# The operations of <linux/fuse.h> that a loop device sends to a file.
GETATTR, OPEN, READ, WRITE, RELEASE, FSYNC, FLUSH, INIT, INTERRUPT = 3, 14, 15, 16, 18, 20, 25, 26, 36
FORGET, BATCH_FORGET = 2, 42
# From <linux/dm-ioctl.h>.
DM_IOCTL, DM_TARGET_MSG = struct.Struct("<10IQ128s129s7x"), 0xC138FD0E
HEADER = struct.Struct("<IIQQIIII")
REQUEST_MAX = (1 << 20) + 4096
BIG_WRITES, MAX_PAGES, DIRECT_IO = 1 << 5, 1 << 22, 1


class File:
    """The image as one regular file, the root of its own file system."""

    def __init__(self, image, where):
        self.image = os.open(image, os.O_RDWR)
        self.size = os.fstat(self.image).st_size
        self.bad, self.hangs = [], False
        self.fuse = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK)
        how = f"fd={self.fuse},rootmode=100600,user_id=0,group_id=0,max_read={1 << 20}"
        if ctypes.CDLL(None, use_errno=True).mount(b"ordeal", where.encode(), b"fuse", 0, how.encode()):
            raise OSError(ctypes.get_errno(), f"mount {where}")

    def serve(self):
        """Answers requests in their order; a hanging disk leaves them in the kernel's queue."""
        commands = sys.stdin.buffer.raw
        while True:
            ready, _, _ = select.select([commands] if self.hangs else [commands, self.fuse], [], [])
            if commands in ready:
                line = commands.readline().split()
                if not line:
                    return
                self.command(line)
                print("ok", flush=True)
            elif ready:
                try:
                    request = os.read(self.fuse, REQUEST_MAX)
                except OSError as error:
                    if error.errno in (errno.EAGAIN, errno.ENOENT, errno.EINTR):
                        continue
                    return
                self.answer(request)

    def command(self, line):
        if line[0] == b"bad":
            self.bad.append((int(line[1]), int(line[2])))
        elif line[0] == b"good":
            self.bad.clear()
        else:
            self.hangs = line[0] == b"hang"

    def answer(self, request):
        _, operation, unique, *_ = HEADER.unpack_from(request)
        if operation in (FORGET, BATCH_FORGET, INTERRUPT):
            return
        try:
            error, body = 0, self.execute(operation, memoryview(request)[HEADER.size :])
        except OSError as failed:
            error, body = failed.errno, b""
        os.write(self.fuse, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)

    def execute(self, operation, body):
        if operation == INIT:
            _, _, ahead, flags = struct.unpack_from("<IIII", body)
            flags &= BIG_WRITES | MAX_PAGES
            return struct.pack("<IIIIHHIIHHI28x", 7, 31, ahead, flags, 16, 12, 1 << 20, 1, 256, 0, 0)
        if operation == GETATTR:
            times = struct.pack("<QQQIII", 0, 0, 0, 0, 0, 0)
            attributes = struct.pack("<QQQ", 1, self.size, self.size // 512) + times
            return struct.pack("<QII", 3600, 0, 0) + attributes + struct.pack("<IIIIIII", 0o100600, 1, 0, 0, 0, 4096, 0)
        if operation == OPEN:
            return struct.pack("<QII", 0, DIRECT_IO, 0)
        if operation in (READ, WRITE):
            _, at, size = struct.unpack_from("<QQI", body)
            if any(first < at + size and at < end for first, end in self.bad):
                raise OSError(errno.EIO, "bad blocks")
            if operation == READ:
                return os.pread(self.image, size, at)
            return struct.pack("<II", os.pwrite(self.image, body[40 : 40 + size], at), 0)
        # The machine does not die in a run, so what the image's file system has is as good as flushed.
        if operation in (FSYNC, FLUSH, RELEASE):
            return b""
        raise OSError(errno.ENOSYS, "not served")


class Served:
    """The process that serves an image, and the loop device over it."""

    def __init__(self, image):
        self.device, self.file = None, image.with_suffix(".disk")
        self.file.touch()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ordeal.disk", image, self.file],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )
        if self.process.stdout.readline() != "ok\n":
            raise Unavailable(f"no FUSE file system at {self.file}")
        self.device = run("losetup", "--find", "--show", self.file)

    def tell(self, command):
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        self.process.stdout.readline()

    def fail(self, ranges):
        """Reads and writes of these ranges of bytes give EIO, until `heal`."""
        for first, end in ranges:
            self.tell(f"bad {first} {end}")

    def heal(self):
        self.tell("good")

    def hang(self):
        """No request is answered until `resume`."""
        self.tell("hang")

    def resume(self):
        self.tell("resume")

    def close(self):
        """Also of a disk that hangs: without its process, every request fails."""
        if self.device:
            subprocess.run(["losetup", "--detach", self.device], capture_output=True)
        self.process.stdin.close()
        self.process.wait()
        # The loop device releases its file a moment after it was detached.
        for _ in range(50):
            if subprocess.run(["umount", self.file], capture_output=True).returncode == 0:
                return
            time.sleep(0.1)


class Mapped:
    """A loop device under device mapper's `dust`: a write of a bad block mends it, as disks do."""

    BAD_MAX = 512

    def __init__(self, image):
        self.loop, self.device = run("losetup", "--find", "--show", image), None
        self.name = f"ordeal-{image.stem}"
        size = os.path.getsize(image) // 512
        try:
            run("dmsetup", "create", self.name, "--table", f"0 {size} dust {self.loop} 0 4096")
            self.device = f"/dev/mapper/{self.name}"
            self.message("enable")
        except BaseException:
            self.close()
            raise

    def message(self, words):
        """What `dmsetup message` does, without a process for each block."""
        data = struct.pack("<Q", 0) + words.encode() + b"\0"
        head = DM_IOCTL.pack(4, 0, 0, DM_IOCTL.size + len(data), DM_IOCTL.size, 0, 0, 0, 0, 0, 0, self.name.encode(), b"")
        with open("/dev/mapper/control", "rb") as control:
            fcntl.ioctl(control, DM_TARGET_MSG, bytearray(head + data))

    def fail(self, ranges):
        """Reads of these ranges of bytes give EIO until they are written, or `heal`. A message takes one block."""
        blocks = set()
        for first, end in ranges:
            # The target refuses a block that it has.
            blocks.update(range(first // 4096, min(-(-end // 4096), first // 4096 + self.BAD_MAX)))
        for block in blocks:
            self.message(f"addbadblock {block}")

    def heal(self):
        self.message("clearbadblocks")

    def hang(self):
        """No request is answered until `resume`."""
        run("dmsetup", "suspend", "--noflush", "--nolockfs", self.name)

    def resume(self):
        run("dmsetup", "resume", self.name)

    def close(self):
        if self.device:
            subprocess.run(["dmsetup", "remove", self.name], capture_output=True)
        subprocess.run(["losetup", "--detach", self.loop], capture_output=True)


if __name__ == "__main__":
    file = File(*sys.argv[1:])
    print("ok", flush=True)
    file.serve()
