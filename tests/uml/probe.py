"""One reader and writer of blocks that it knows, which notes how long each call takes: pauses of the disk."""

import mmap
import os
import random
import threading
import time

BLOCK = 4096


def block(at, version):
    """What a block contains: another text in each place and version."""
    return random.Random(at << 32 | version).randbytes(BLOCK)


class Blocks:
    """A range of a file or a disk, past the page cache. Writes are durable. `versions` says what was written last."""

    def __init__(self, path, first, count):
        self.first, self.versions = first, [0] * count
        self.reads = os.open(path, os.O_RDONLY | os.O_DIRECT)
        self.writes = os.open(path, os.O_WRONLY | os.O_DIRECT | os.O_DSYNC)
        self.buffer = mmap.mmap(-1, BLOCK)  # O_DIRECT wants whole pages of memory

    def close(self):
        os.close(self.reads)
        os.close(self.writes)

    def write(self, at, version):
        """Writes a block; it has the version from then on."""
        self.buffer[:] = block(at, version)
        if os.pwrite(self.writes, self.buffer, (self.first + at) * BLOCK) != BLOCK:
            raise OSError(f"a write of block {at} was short")
        self.versions[at] = version

    def read(self, at):
        if os.preadv(self.reads, [self.buffer], (self.first + at) * BLOCK) != BLOCK:
            raise OSError(f"a read of block {at} was short")
        return bytes(self.buffer)

    def fill(self, version):
        """Writes all of them, many at once."""
        count = len(self.versions)
        with mmap.mmap(-1, count * BLOCK) as buffer:
            for at in range(count):
                buffer[at * BLOCK : (at + 1) * BLOCK] = block(at, version)
            if os.pwrite(self.writes, buffer, self.first * BLOCK) != count * BLOCK:
                raise OSError("a write of all blocks was short")
        self.versions = [version] * count

    def is_right(self, at):
        return self.read(at) == block(at, self.versions[at])

    def check(self):
        """Reads all of them; those that gave an I/O error, and those that are not as they were written last."""
        refused, wrong = set(), set()
        for at in range(len(self.versions)):
            try:
                if not self.is_right(at):
                    wrong.add(at)
            except OSError:
                refused.add(at)
        return refused, wrong


class Prober:
    """Reads and writes blocks, one after the other in no order, until it is stopped."""

    def __init__(self, path, first, count, seed=1):
        self.blocks = Blocks(path, first, count)
        self.blocks.fill(1)
        self.chosen = random.Random(seed)
        self.calls, self.failures = [], []  # when each began and how long it took
        self.began, self.is_stopped = None, threading.Event()
        self.thread = threading.Thread(target=self.go, daemon=True)
        self.thread.start()

    def go(self):
        while not self.is_stopped.wait(0.002):
            at = self.chosen.randrange(len(self.blocks.versions))
            is_write = self.chosen.random() < 0.3
            self.began = time.monotonic()
            try:
                if is_write:
                    self.blocks.write(at, self.blocks.versions[at] + 1)
                elif not self.blocks.is_right(at):
                    self.failures.append(f"the prober read wrong bytes in block {at}")
            except OSError as error:
                self.failures.append(f"the prober, block {at}, {'write' if is_write else 'read'}: {error}")
            self.calls.append((self.began, time.monotonic() - self.began))
            self.began = None

    def wait_until_served(self):
        """Waits for the end of a call that began after this: those before it may have waited for a server that was away."""
        asked = time.monotonic()
        while not self.calls or self.calls[-1][0] < asked:
            time.sleep(0.01)

    def longest(self, since, until=None):
        """The longest call, in seconds, that was under way at some time between; also one that is now."""
        until, began = until or time.monotonic(), self.began
        calls = list(self.calls)
        if began is not None:
            calls.append((began, time.monotonic() - began))
        return round(max((took for at, took in calls if at <= until and at + took >= since), default=0.0), 3)

    def stop(self):
        """Ends it; returns what it found wrong."""
        self.is_stopped.set()
        self.thread.join()
        self.blocks.close()
        return self.failures[:10]
