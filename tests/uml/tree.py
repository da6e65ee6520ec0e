"""A tree of files, and what is in it."""

import hashlib
import os
import random


def write_tree(top, size):
    """Files of 0 to 4 MiB, most of them small, in directories that are up to three deep. The same ones for the same size."""
    chosen = random.Random(size)
    left = size
    while left > 0:
        directory = top.joinpath(*(f"d{chosen.randrange(6)}" for _ in range(chosen.randrange(4))))
        directory.mkdir(parents=True, exist_ok=True)
        length = int(min(left, 2 ** chosen.uniform(0, 22)))
        path = directory / f"f{left}"
        path.write_bytes(chosen.randbytes(length))
        if chosen.random() < 0.1:
            (directory / f"s{left}").symlink_to(path.name)
        left -= length


def sums(top):
    """The SHA-256 of each file, and where each link leads, by path."""
    found = {}
    for directory, _, names in os.walk(top):
        for name in names:
            path = os.path.join(directory, name)
            if os.path.islink(path):
                found[path] = os.readlink(path)
            else:
                with open(path, "rb") as file:
                    found[path] = hashlib.sha256(file.read()).hexdigest()
    return found
