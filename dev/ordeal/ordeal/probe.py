"""Measures volumes beside the server: two that are slow at once fail its calls, whatever made them slow."""

import os
import threading
import time

EVERY = 0.3


class Probe(threading.Thread):
    """Writes and syncs a page of a volume, several times a second."""

    def __init__(self, volume, slow):
        super().__init__(daemon=True)
        self.volume, self.slow = volume, slow
        self.began, self.slow_at, self.longest = None, float("-inf"), 0.0
        self.ended = threading.Event()

    def run(self):
        while not self.ended.wait(EVERY):
            self.began = began = time.monotonic()
            works = self.write()
            now = time.monotonic()
            if not works or now - began > self.slow:
                self.slow_at = now
            self.longest, self.began = max(self.longest, now - began), None

    def write(self):
        if not self.volume.mounted:
            return False
        try:
            file = os.open(self.volume.root / "page", os.O_CREAT | os.O_WRONLY | os.O_DSYNC)
            try:
                return os.pwrite(file, bytes(4096), 0) == 4096
            finally:
                os.close(file)
        except OSError:
            return False

    def was_slow(self, within):
        """Whether a write failed or took too long within these seconds, or does so now."""
        now, began = time.monotonic(), self.began
        return self.slow_at > now - within or began is not None and now - began > self.slow


def at_once(probes, within):
    """How many volumes were slow."""
    return sum(probe.was_slow(within) for probe in probes)
