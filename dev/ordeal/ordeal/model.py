"""The possible results of reads. A cell (a key, a field, a batch of points) holds versions, newer ones are larger."""

import random
import time
import zlib

ABSENT = 0
POOL = random.Random(7).randbytes(4 << 20)
SLACK = 1.0


class Cell:
    """The last acknowledged version, and later ones without an answer."""

    __slots__ = ("sure", "lives_until", "maybe", "refused")

    def __init__(self):
        self.sure, self.maybe, self.refused = ABSENT, {}, set()
        # The earliest and latest moment of its expiry, if it expires.
        self.lives_until = None

    def acknowledged(self, version, lives_until=None):
        self.sure, self.lives_until = version, lives_until
        self.maybe.clear()

    def unknown(self, version, lives_until=None):
        self.maybe[version] = lives_until

    def is_refused(self, version):
        self.refused.add(version)

    def check(self, found, now=None):
        """The violation by a version that was read, or none. The version read is the expected one from then on."""
        now = time.time() if now is None else now
        allowed = {**self.maybe, self.sure: self.lives_until}
        may_be_over = any(until and now > until[0] - SLACK for until in allowed.values())
        until = allowed.get(found)
        wrong = None
        if found in allowed:
            if until and now > until[1] + SLACK:
                wrong = "not_expired"
        elif found == ABSENT and may_be_over:
            pass
        elif found in self.refused:
            wrong = "visible_though_refused"
        elif found == ABSENT:
            wrong = "lost"
        elif self.sure == ABSENT:
            wrong = "resurrected"
        else:
            wrong = "stale" if found < self.sure else "never_written"
        self.acknowledged(found, until)
        return wrong


class Cells(dict):
    """Cells by name."""

    def __missing__(self, name):
        self[name] = Cell()
        return self[name]

    def present(self):
        return [name for name, cell in self.items() if cell.sure != ABSENT]


def value(key, version, size):
    """Incompressible bytes that identify their key and version."""
    head = f"{key} {version} ".encode()
    at = zlib.crc32(head) % (len(POOL) - size)
    return head + POOL[at : at + size - len(head)]


def version_of(key, found):
    """The version of the bytes read; none if they were never written."""
    if found is None:
        return ABSENT
    try:
        name, version, _ = found.split(b" ", 2)
        version = int(version)
    except ValueError:
        return None
    is_whole = name.decode() == key and value(key, version, len(found)) == found
    return version if is_whole else None
