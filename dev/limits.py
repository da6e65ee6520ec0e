"""Devices of this machine with limits that the kernel enforces, and what they did."""

import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

VOLUME = """
[volume.{name}]
path = "{path}"
contract = {{ iops = {line}, mib_per_s = {mib_per_s} }}
adapt = false
"""

# Whoever ends a measurement early leaves no devices behind.
signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))


class Device:
    """An ext4 file system on a loop device with a limit, until the end of the `with`: so many reads a second, and as many writes.

    The kernel's limit is a twentieth more than what the volume is sold: what is too much by one it would hold back for up to a
    tenth of a second, which no provider does.
    """

    def __init__(self, place, name, line, gib=8):
        self.name, self.line, self.gib = name, line, gib
        self.directory = place / name
        self.path = self.directory / "0"

    def __enter__(self):
        self.call("up", self.directory, 1, self.line * 21 // 20, f"{self.gib}G")
        self.stat = Path("/sys/block") / Path((self.directory / "devices").read_text().strip()).name / "stat"
        return self

    def __exit__(self, *_):
        self.call("down", self.directory)

    @staticmethod
    def call(*words):
        line = [str(Path(__file__).parent / "devices"), *map(str, words)]
        ran = subprocess.run(line, capture_output=True, text=True, timeout=120)
        if ran.returncode:
            sys.exit(f"{' '.join(line)}: {ran.stderr}")

    def operations(self):
        words = self.stat.read_text().split()
        return int(words[0]), int(words[4])

    def settings(self, mib_per_s):
        """As a volume whose reads and writes share the line, as with gp3."""
        return VOLUME.format(name=self.name, path=self.path, line=self.line, mib_per_s=mib_per_s)


class Watch:
    """Operations of some devices together while it watches, as the kernel counts them."""

    def __init__(self, *devices):
        self.devices, self.ended, self.counts = devices, threading.Event(), []
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        while True:
            reads, writes = map(sum, zip(*(device.operations() for device in self.devices)))
            self.counts.append((time.monotonic(), reads, writes))
            if self.ended.wait(1):
                return

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def total(self):
        """Reads and writes of all the time."""
        return tuple(self.counts[-1][at] - self.counts[0][at] for at in (1, 2))

    def rates(self):
        """Operations a second: the mean, and the fullest second."""
        seconds = list(zip(self.counts, self.counts[1:]))[:-1] or [(self.counts[0], self.counts[-1])]
        rates = [(reads + writes - before[1] - before[2]) / (at - before[0]) for before, (at, reads, writes) in seconds]
        return statistics.mean(rates), max(rates)
