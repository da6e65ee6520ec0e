"""Devices with a limit, as a provider sells them, and what their kernel counts."""

import sys
import time
from pathlib import Path

from stack import run

MIB = 1 << 20
OPERATION_KIB = 256
# Of a volume on such a device.
CONTRACT = """
op_kib_max = {operation}
iops = {{ included = {iops}, depth_s = 0.1 }}
"""


def create(name, table):
    """A device of dm, with its node where there is no udev."""
    run("dmsetup", "create", name, "--noudevsync", "--table", table)
    run("dmsetup", "mknodes", name)


class Device:
    """A file in memory as two exports of qemu-nbd, without and with a limit, and linear maps on one of them."""

    def __init__(self, name, first, iops, slices):
        self.slices, self.iops, self.free, self.limited = slices, iops, f"/dev/nbd{first}", f"/dev/nbd{first + 1}"
        path = Path("/dev/shm") / name
        path.touch()
        with path.open("r+b") as file:
            file.truncate(sum(slices.values()) * MIB)
        for export, rate in ((self.free, 10_000_000), (self.limited, iops)):
            group = f"throttle-group,id=limit,x-iops-total={rate},x-iops-size={OPERATION_KIB << 10}"
            image = f"driver=throttle,throttle-group=limit,file.driver=file,file.filename={path}"
            run("qemu-nbd", "-c", export, "--cache=writeback", "--object", group, "--image-opts", image)
        deadline = time.monotonic() + 10
        while not all(self.sectors(export) for export in (self.free, self.limited)):
            if time.monotonic() > deadline:
                sys.exit(f"{name}: qemu-nbd did not attach")
            time.sleep(0.05)
        # As volumes of a provider, they have no cache that loses writes. The kernel counts an empty flush as a write.
        for export in (self.free, self.limited):
            queue = Path(f"/sys/block/{Path(export).name}/queue")
            (queue / "write_cache").write_text("write through")
            # And one I/O of what is one operation: this driver's are of 128 KiB at most.
            (queue / "max_sectors_kb").write_text(str(OPERATION_KIB))
        for slice_name, table in self.tables(self.free):
            create(slice_name, table)

    @staticmethod
    def sectors(path):
        return int(Path(f"/sys/block/{Path(path).name}/size").read_text())

    def tables(self, export):
        """The name of each linear map, and its table."""
        start = 0
        for name, mib in self.slices.items():
            yield name, f"0 {mib * MIB // 512} linear {export} {start}"
            start += mib * MIB // 512

    def limit(self, on):
        tables = list(self.tables(self.limited if on else self.free))
        for name, _ in tables:
            run("dmsetup", "suspend", name)
        for name, table in tables:
            run("dmsetup", "load", name, "--table", table)
        for name, _ in tables:
            run("dmsetup", "resume", "--noudevsync", name)

    def mount(self, directory):
        """Makes a file system of each map, in a directory of its name, with a contract beside it."""
        for name in self.slices:
            run("mkfs.ext4", "-q", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0", f"/dev/mapper/{name}")
            (directory / name).mkdir()
            run("mount", f"/dev/mapper/{name}", directory / name)
            (directory / f"{name}.toml").write_text(CONTRACT.format(operation=OPERATION_KIB, iops=self.iops))

    def count(self):
        """I/Os that the limited export completed: reads, writes, and flushes."""
        fields = Path(f"/sys/block/{Path(self.limited).name}/stat").read_text().split()
        return {"reads": int(fields[0]), "writes": int(fields[4]), "flushes": int(fields[15])}


def limit_volumes(server, devices, on):
    """Limits mounted devices, and gives their volumes the contracts that these have: the server starts again."""
    server.stop()
    path = server.directory / "plimsoll.toml"
    text = path.read_text()
    for device in devices:
        device.limit(on)
        for name in device.slices:
            unlimited, limited = (f'path = "{name}"\ncontract = "{word}"' for word in ("unlimited", f"{name}.toml"))
            text = text.replace(unlimited, limited) if on else text.replace(limited, unlimited)
    path.write_text(text)
    server.start()


def processor():
    """Ticks so far, and those in which it had nothing to do."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(ticks), ticks[3] + ticks[4]
