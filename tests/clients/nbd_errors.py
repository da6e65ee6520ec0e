"""Run by nbdsh: requests that no client should send. Each gets the error that the protocol names, and the next one is served."""

import errno

SIZE = h.get_size()
KIB = 1024
h.set_strict_mode(0)


def refused(wanted, what, call, *args):
    try:
        call(*args)
    except nbd.Error as error:
        assert error.errnum == wanted, f"{what}: {error}"
    else:
        assert False, f"{what}: done"
    assert h.pread(4 * KIB, 0) == kept, f"after {what}"


kept = bytes(range(256)) * 16
h.pwrite(kept, 0)
buffer, unknown = bytearray(8 * KIB), 1 << 9

for where, offset in (("across the end", SIZE - 4 * KIB), ("at the end", SIZE), ("far behind", 1 << 62)):
    refused(errno.EINVAL, f"read {where}", h.pread, 8 * KIB, offset)
    refused(errno.ENOSPC, f"write {where}", h.pwrite, buffer, offset)
    refused(errno.EINVAL, f"trim {where}", h.trim, 8 * KIB, offset)
    refused(errno.ENOSPC, f"zero {where}", h.zero, 8 * KIB, offset)
    refused(errno.EINVAL, f"cache {where}", h.cache, 8 * KIB, offset)
    refused(errno.EINVAL, f"status {where}", h.block_status, 8 * KIB, offset, lambda *_: 0)

refused(errno.EINVAL, "read with an unknown flag", h.pread, 512, 0, unknown)
refused(errno.EINVAL, "write with an unknown flag", h.pwrite, buffer, 0, unknown)
refused(errno.EINVAL, "trim with an unknown flag", h.trim, 512, 0, unknown)
refused(errno.EINVAL, "zero with an unknown flag", h.zero, 512, 0, unknown)
refused(errno.EINVAL, "cache with an unknown flag", h.cache, 512, 0, unknown)
refused(errno.EINVAL, "flush with an unknown flag", h.flush, unknown)
refused(errno.EINVAL, "status with an unknown flag", h.block_status, 512, 0, lambda *_: 0, unknown)
refused(errno.EINVAL, "trim with the flag of a read", h.trim, 512, 0, nbd.CMD_FLAG_DF)

# The protocol lets a server take both: FUA with any command, and requests of any alignment.
assert h.pread(4 * KIB, 0, nbd.CMD_FLAG_FUA) == kept
h.pwrite(b"odd", 5000 + 1)
assert h.pread(5, 5000) == b"\0odd\0"
h.zero(1, 5000 + 1)
h.trim(777, 12345)
h.cache(1, 3)
assert h.pread(5, 5000) == b"\0\0dd\0"

# Of no bytes: the protocol leaves it open, and we do nothing. A status must be of some.
h.trim(0, 0)
h.zero(0, 0)
h.cache(0, 0)
h.pwrite(b"", 0)
assert h.pread(0, 0) == b""
refused(errno.EINVAL, "status of no bytes", h.block_status, 0, 0, lambda *_: 0)
h.flush()
h.shutdown()
