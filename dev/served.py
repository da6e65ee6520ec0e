"""A server of NBD on this machine, and fio's nbd engine as its client."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

START_MAX, STOP_MAX = 60, 60


def free_port():
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        return any_port.getsockname()[1]


class Server:
    """A process that serves `disk` on a port, until the end of the `with`."""

    def __init__(self, name, line, port):
        self.name, self.line, self.port = name, line, port
        self.log = subprocess.DEVNULL

    def __enter__(self):
        self.process = subprocess.Popen(self.line, stdout=self.log, stderr=self.log)
        self.wait_for(self.answers, START_MAX, f"{self.name} does not answer")
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
            return True
        except OSError:
            return False

    @staticmethod
    def wait_for(holds, seconds, otherwise):
        """The seconds until it holds."""
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > seconds:
                sys.exit(otherwise)
            time.sleep(0.05)
        return time.monotonic() - began

    def processor_seconds(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def fio(self, *job):
        """What fio says of a job, which ends by itself."""
        line = ["fio", f"--name={self.name}", "--ioengine=nbd", f"--uri=nbd://127.0.0.1:{self.port}/disk"]
        line += ["--randrepeat=0", "--output-format=json", *map(str, job)]
        ran = subprocess.run(line, capture_output=True, text=True, timeout=1200)
        if ran.returncode:
            sys.exit(f"fio on {self.name}: {ran.stderr}{ran.stdout}")
        return json.loads(ran.stdout[ran.stdout.index("{"):])["jobs"][0]


class Plimsoll(Server):
    """`plimsoll serve` with these settings of volumes and of the pool `main`, and block devices on it; its log is in `place`."""

    def __init__(self, program, place, settings, durability):
        port, self.admin = free_port(), free_port()
        self.program, self.settings = os.path.abspath(program), place / "plimsoll.toml"
        self.settings.write_text(
            f'{settings}\n[block]\npool = "main"\nlisten = "127.0.0.1:{port}"\ndurability = "{durability}"\n'
            f'\n[admin]\nlisten = "127.0.0.1:{self.admin}"\n'
        )
        super().__init__("plimsoll", [self.program, "serve", "-c", self.settings], port)
        self.log = open(place / "log", "ab")

    def run(self, *words):
        line = [self.program, *map(str, words), "-c", str(self.settings)]
        ran = subprocess.run(line, capture_output=True, text=True, timeout=600)
        if ran.returncode:
            sys.exit(f"{' '.join(line)}: {ran.stdout}{ran.stderr}")
        return ran.stdout

    def answers(self):
        return self.is_healthy()

    def is_healthy(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/health", timeout=20) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def metric(self, family):
        """The sum of a family's samples."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=20) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith((f"plimsoll_{family}{{", f"plimsoll_{family} ")))
