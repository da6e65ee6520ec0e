"""`dev/ordeal`: one round of `full` for each store on a small volume, and the model that its runs compare with.

Loop devices and mounts need root: without it, the rounds fail.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ORDEAL = Path(__file__).resolve().parents[2] / "dev" / "ordeal"
sys.path.insert(0, str(ORDEAL))

from ordeal.model import ABSENT, Cell, value, version_of  # noqa: E402


@pytest.mark.parametrize("store, mib", [("kv", 128), ("series", 64)])
def test_a_full_volume_takes_deletes_and_then_writes(store, mib, tmp_path):
    ran = subprocess.run(
        [ORDEAL / "run", "full", "--store", store, f"--{store}-mib", str(mib), "--volumes", "1", "--kill", "no",
         "--rounds", "1", "--seed", "1", "--dir", tmp_path, "--program", os.environ["PLIMSOLL"]],
        capture_output=True, text=True, timeout=600,
    )
    assert ran.returncode in (0, 1), ran.stderr
    found = json.loads(ran.stdout)
    assert found["good"], ran.stdout + ran.stderr
    assert found["counts"]["rounds"] == 1 and found["counts"][f"{store}_refused"] > 0
    assert found["smallest"]["share"] >= 0.7


def cell(sure, maybe=(), refused=(), lives_until=None):
    cell = Cell()
    cell.acknowledged(sure, lives_until)
    for version in maybe:
        cell.unknown(version)
    for version in refused:
        cell.is_refused(version)
    return cell


@pytest.mark.parametrize(
    "subject, found, wrong",
    [
        (cell(3), 3, None),
        (cell(3), 2, "stale"),
        (cell(3), ABSENT, "lost"),
        (cell(3, maybe=[ABSENT]), ABSENT, None),
        (cell(3, maybe=[4]), 4, None),
        (cell(3, refused=[4]), 4, "visible_though_refused"),
        (cell(ABSENT), 2, "resurrected"),
        (cell(3), 9, "never_written"),
        (cell(3, lives_until=(50, 51)), 3, "not_expired"),
        (cell(3, lives_until=(50, 51)), ABSENT, None),
        (cell(3, lives_until=(150, 151)), ABSENT, "lost"),
        (cell(3, lives_until=(150, 151)), 3, None),
    ],
)
def test_the_model_tells_what_is_wrong(subject, found, wrong):
    assert subject.check(found, now=100) == wrong
    # The version that was read is the expected one from now on.
    again = subject.check(found, now=100)
    assert again == ("not_expired" if wrong == "not_expired" else None)


def test_a_value_tells_its_key_and_version():
    assert version_of("a", value("a", 7, 500)) == 7
    assert version_of("a", None) == ABSENT
    assert version_of("b", value("a", 7, 500)) is None
    assert version_of("a", value("a", 7, 500)[:-1] + b"x") is None
