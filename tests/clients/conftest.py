"""The real server for real clients: started once, on free ports, over volumes in a fresh directory."""

import os
import re
import signal
import socket
import subprocess

import pytest
import redis

SETTINGS = """
[volume.a]
path = "a"
contract = "gp3"
simulate = true

[volume.b]
path = "b"
contract = "unlimited"
simulate = true

[volume.c]
path = "c"
contract = "unlimited"
simulate = true

[pool.main]
volumes = ["a", "b"]

[kv]
pool = "main"
memory = "64MiB"
listen = "127.0.0.1:0"
bulk_max = "1MiB"

[series]
volumes = ["c"]
memory = "64MiB"

[http]
listen = "127.0.0.1:0"

[admin]
listen = "unix:admin.socket"
"""


class Server:
    """A running `plimsoll serve`, with more settings for its `[kv]` and `[http]`, and more sections."""

    def __init__(self, directory, kv="", http="", more=""):
        self.directory = directory
        settings = SETTINGS.replace("[kv]\n", "[kv]\n" + kv).replace("[http]\n", "[http]\n" + http)
        (directory / "plimsoll.toml").write_text(settings + more)
        with open(directory / "log", "w") as log:
            self.process = subprocess.Popen(
                [os.environ["PLIMSOLL"], "serve", "-c", "plimsoll.toml"],
                cwd=directory,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        for line in self.process.stdout:
            if line.startswith("ready: "):
                self.port = int(re.search(r"redis on 127\.0\.0\.1:(\d+)", line)[1])
                self.http = int(re.search(r"series on 127\.0\.0\.1:(\d+)", line)[1])
                nbd = re.search(r"nbd on 127\.0\.0\.1:(\d+)", line)
                self.nbd = int(nbd[1]) if nbd else None
                return
        pytest.fail("the server ended before it was ready: " + (directory / "log").read_text())

    def connect(self, **how):
        return redis.Redis(port=self.port, **how)

    def run(self, program, *args, **how):
        """Runs a client program against this server; fails if the program fails."""
        ran = subprocess.run(
            [program, "-p", str(self.port), *args], capture_output=True, text=True, timeout=300, **how
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def metrics(self):
        """The values of `/metrics` without labels, by family."""
        with socket.socket(socket.AF_UNIX) as admin:
            admin.connect(str(self.directory / "admin.socket"))
            admin.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            text = admin.makefile(encoding="utf-8", newline="").read()
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("plimsoll_"))
        return {name.removeprefix("plimsoll_"): float(value) for name, value in lines}

    def reload(self):
        """Reloads the settings; returns the status and the text of the answer."""
        with socket.socket(socket.AF_UNIX) as admin:
            admin.connect(str(self.directory / "admin.socket"))
            admin.sendall(b"POST /reload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = admin.makefile(encoding="utf-8", newline="").read()
        head, told = answer.split("\r\n\r\n", 1)
        return int(head.split()[1]), told

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=60) == 0


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("plimsoll"))
    yield server
    server.stop()


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def client(server, request):
    """A redis-py client in either version of the protocol, that finds no key."""
    client = server.connect(protocol=request.param, decode_responses=True)
    keys = [key for key in ("ship", "line", "bytes", "missing") if client.exists(key)]
    if keys:
        client.delete(*keys)
    return client
