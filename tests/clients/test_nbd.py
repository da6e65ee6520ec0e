"""NBD clients: those of libnbd and of QEMU, and fio, each on a device of its own."""

import json
import os
import random
import subprocess
from pathlib import Path

import pytest
from conftest import Server

BLOCK = """
[block]
pool = "main"
listen = "127.0.0.1:0"
"""
MIB = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("nbd"), more=BLOCK)
    yield server
    server.stop()


def run(*command, **how):
    """Runs a program; fails if it fails."""
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, **how)
    assert ran.returncode == 0, f"{command}: {ran.stdout}{ran.stderr}"
    return ran.stdout


def block(server, *args):
    return run(os.environ["PLIMSOLL"], "block", *args, "--admin", "unix:admin.socket", cwd=server.directory)


@pytest.fixture
def device(server, request):
    """The URI of a device of 64 MiB with the name of the test."""
    name = request.node.name
    block(server, "create", name, "64MiB")
    yield f"nbd://127.0.0.1:{server.nbd}/{name}"
    block(server, "delete", name, "--yes")


def test_nbdinfo(server, device):
    name = device.rsplit("/", 1)[1]
    export = json.loads(run("nbdinfo", "--json", device))["exports"][0]
    assert export["export-size"] == 64 * MIB
    for can in ("can_trim", "can_zero", "can_fua", "can_flush", "can_multi_conn"):
        assert export[can], can
    listed = json.loads(run("nbdinfo", "--json", "--list", f"nbd://127.0.0.1:{server.nbd}"))
    assert name in [export["export-name"] for export in listed["exports"]]
    missing = subprocess.run(["nbdinfo", f"{device}-not"], capture_output=True, text=True, timeout=60)
    assert missing.returncode != 0


def test_nbdinfo_maps_holes(device):
    run("qemu-io", "-f", "raw", "-c", "write -P 7 1M 1M", device)
    extents = json.loads(run("nbdinfo", "--json", "--map", device))
    assert sum(extent["length"] for extent in extents) == 64 * MIB
    data = [extent for extent in extents if extent["type"] == 0]
    assert any(extent["offset"] <= MIB and extent["offset"] + extent["length"] >= 2 * MIB for extent in data)
    assert any(extent["type"] == 3 for extent in extents), "what was never written is a hole"


def test_nbdcopy_there_and_back(device, tmp_path):
    there, back = tmp_path / "there", tmp_path / "back"
    randomly = random.Random(1)
    with open(there, "wb") as image:
        image.truncate(64 * MIB)
        for at in (0, 5, 17 * MIB + 512, 40 * MIB, 63 * MIB):
            image.seek(at)
            image.write(randomly.randbytes(MIB))
    run("nbdcopy", "--flush", str(there), device)
    run("nbdcopy", device, str(back))
    assert there.read_bytes() == back.read_bytes()


def test_qemu_io_patterns(device):
    commands = [
        "write -P 0xa1 0 64k", "write -f -P 0xb2 100 3000", "write -P 0xc3 1048000 1500", "flush",
        "read -P 0xa1 0 100", "read -P 0xb2 100 3000", "read -P 0xa1 3100 1000", "read -P 0xc3 1048000 1500",
        "discard 0 64k", "read -P 0 0 64k", "write -z 1048000 1500", "read -P 0 1048000 1500",
        "write -P 0xd4 67108352 512", "read -P 0xd4 67108352 512",
    ]  # fmt: skip
    told = run("qemu-io", "-f", "raw", *(word for command in commands for word in ("-c", command)), device)
    assert "failed" not in told, told


def test_qemu_img_compares(device, tmp_path):
    image = tmp_path / "image.qcow2"
    run("qemu-img", "create", "-f", "qcow2", str(image), "64M")
    run("qemu-io", "-c", "write -P 9 3M 5M", str(image))
    run("qemu-img", "convert", "-n", "-O", "raw", str(image), device)
    assert "identical" in run("qemu-img", "compare", "-F", "raw", str(image), device)


@pytest.mark.parametrize("depth", [1, 16, 128])
def test_fio_verifies_what_it_wrote(server, depth):
    name = f"fio-{depth}"
    block(server, "create", name, "64MiB")
    run(
        "fio", "--name=verify", "--ioengine=nbd", f"--uri=nbd://127.0.0.1:{server.nbd}/{name}", "--rw=randrw",
        "--bsrange=512-64k", f"--iodepth={depth}", "--size=16M", "--verify=crc32c",
        "--verify_fatal=1", "--randseed=3", cwd=server.directory,
    )  # fmt: skip
    block(server, "delete", name, "--yes")


def test_requests_that_make_no_sense_get_their_errors(device):
    script = Path(__file__).with_name("nbd_errors.py")
    # The module is of Debian's Python, which need not be the first one in the path.
    debian = {**os.environ, "PATH": "/usr/bin:/bin"}
    run("nbdsh", "--base-allocation", "--uri", device, "-c", script.read_text(), env=debian)


def test_a_device_grows_and_keeps_its_bytes(server, device):
    name = device.rsplit("/", 1)[1]
    run("qemu-io", "-f", "raw", "-c", "write -P 5 60M 4M", device)
    block(server, "resize", name, "128MiB")
    told = run("qemu-io", "-f", "raw", "-c", "read -P 5 60M 4M", "-c", "read -P 0 64M 64M", device)
    assert "failed" not in told, told
    with pytest.raises(AssertionError, match="--shrink"):
        block(server, "resize", name, "64MiB")
