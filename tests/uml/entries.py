"""The log of dm-log-writes: each write to a device, in order (Documentation/admin-guide/device-mapper/log-writes.rst)."""

import os
import struct
from collections import namedtuple

from stack import run

SUPER, ENTRY, MAGIC = struct.Struct("<QQQI"), struct.Struct("<QQQQ"), 0x6A736677736872
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8
Entry = namedtuple("Entry", "offset length flags data_at mark")


def entries(log):
    """The log's entries, in order."""
    magic, version, count, sector = SUPER.unpack(os.pread(log, SUPER.size, 0))
    if (magic, version) != (MAGIC, 1):
        raise SystemExit(f"this is no log of dm-log-writes: {magic:#x}, version {version}")
    at = sector
    for _ in range(count):
        first, sectors, flags, mark_length = ENTRY.unpack(os.pread(log, ENTRY.size, at))
        mark = os.pread(log, mark_length, at + ENTRY.size).rstrip(b"\0") if flags & MARK else b""
        yield Entry(first * sector, sectors * sector, flags, at + sector, mark)
        at += sector + (0 if flags & DISCARD else sectors * sector)


def apply(entry, log, image, path):
    if entry.flags & DISCARD:
        run("fallocate", "--punch-hole", "-o", entry.offset, "-l", entry.length, path)
    elif entry.length:
        os.pwrite(image, os.pread(log, entry.length, entry.data_at), entry.offset)
