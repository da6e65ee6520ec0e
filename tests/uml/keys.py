"""A server of keys on a pool with two copies, and its clients."""

import random
import socket
import subprocess
import sys
import time

from stack import VOLUME, Plimsoll, Server, free_port, pool

VOLUMES = ("a", "b")
# A request without an answer ends the script after these seconds.
ANSWER = 60


def value(key):
    return random.Random(key).randbytes(4096)


class Client:
    """A connection that knows SET, GET and DEL."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER)
        self.replies = self.socket.makefile("rb")

    def ask(self, *words):
        """The reply's bytes or number, or an error of the server as text."""
        words = [word if isinstance(word, bytes) else word.encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words))
        line = self.replies.readline().rstrip(b"\r\n")
        if line[:1] == b"-":
            return line[1:].decode()
        if line[:1] == b":":
            return int(line[1:])
        if line[:1] == b"$":
            return self.replies.read(int(line[1:]) + 2)[:-2] if line != b"$-1" else "no such key"
        if line[:1] != b"+":
            raise ConnectionError(f"the server closed the connection, or said {line!r}")
        return line[1:]


class Keys(Plimsoll):
    """`plimsoll serve` with `[kv]` only."""

    # So little memory that memtables are flushed, and tables are read, while a file system is frozen.
    SETTINGS = """
[kv]
pool = "main"
listen = "127.0.0.1:{listener}"
durability = "{durability}"
memory = "32MiB"

[admin]
listen = "127.0.0.1:{admin}"
"""

    def __init__(self, program, directory, limit, user=0, volumes=VOLUMES, layout="copies = 2", durability="everysec"):
        self.user = user
        listener, self.admin = free_port(), free_port()
        text = "".join(VOLUME.format(name=name) + f'timeout = "{limit}s"\n' for name in volumes)
        text += pool("main", volumes, layout)
        text += self.SETTINGS.format(listener=listener, admin=self.admin, durability=durability)
        (directory / "plimsoll.toml").write_text(text)
        self.slowest = 0  # seconds of the longest answer of `/health`
        Server.__init__(self, [program, "serve", "-c", "plimsoll.toml"], listener, directory)

    def start(self):
        with open(self.directory / "server.log", "ab") as log:
            self.process = subprocess.Popen(self.line, cwd=self.directory, stdout=log, stderr=log, user=self.user)
        deadline = time.monotonic() + ANSWER
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if self.answers():
                    return
            except OSError:
                pass
            time.sleep(0.05)
        sys.exit(f"the server did not start; its last words:\n{self.log()[-3000:]}")

    def answers(self):
        return Client(self.port).ask("PING") == b"PONG"

    def health(self):
        began = time.monotonic()
        said = super().health()
        self.slowest = max(self.slowest, time.monotonic() - began)
        return said

    def wait_for_health(self, green, seconds):
        """The seconds until `/health` is green, or until it is not; `None` if that takes too long. And its problems."""
        began = time.monotonic()
        while True:
            healthy, said = self.health()
            took = time.monotonic() - began
            if healthy == green or took > seconds:
                return round(took, 2) if healthy == green else None, said["problems"]
            time.sleep(0.1)
