"""The server as a process: its settings, starts, stops and logs."""

import os
import re
import signal
import subprocess
import threading
import time

from ordeal.clients import Gone, Http, Redis, admin

CONTRACT = "{ iops = 20000, mib_per_s = 1000 }"
START_MAX = 120
STOP_MAX = 120


class DidNotStart(Exception):
    """With the end of its log."""


def section(volume, contract=CONTRACT):
    return f'[volume.{volume.name}]\npath = "{volume.path}"\ncontract = {contract}\n'


class Server:
    def __init__(self, directory, settings, program, start_max=START_MAX):
        self.directory, self.program, self.start_max = directory, program, start_max
        (directory / "plimsoll.toml").write_text(
            settings + f'\n[admin]\nlisten = "unix:{directory}/admin"\n'
        )
        self.process, self.redis_port, self.http_port = None, None, None
        self.starts, self.failed_starts, self.longest_start = 0, 0, 0.0
        self.killed = False

    def start(self):
        """Starts it and waits until it serves; returns the seconds this took."""
        self.starts += 1
        began = time.monotonic()
        with open(self.directory / "log", "ab") as log:
            log.write(f"--- start {self.starts} at {time.strftime('%H:%M:%S')}\n".encode())
            log.flush()
            at = log.tell()
            self.process = subprocess.Popen(
                [self.program, "serve", "-c", "plimsoll.toml"],
                cwd=self.directory, stdout=subprocess.PIPE, stderr=log, text=True,
                # A Ctrl-C must reach the run, not the server.
                start_new_session=True,
            )
        self.killed = False
        ready = threading.Event()
        told = []

        def drain(out):
            for line in out:
                if line.startswith("ready: "):
                    told.append(line)
                    ready.set()
            ready.set()

        threading.Thread(target=drain, args=(self.process.stdout,), daemon=True).start()
        if not ready.wait(self.start_max) or not told:
            self.failed_starts += 1
            self.kill()
            with open(self.directory / "log", "rb") as log:
                log.seek(at)
                raise DidNotStart(log.read().decode(errors="replace")[-1500:])
        redis = re.search(r"redis on 127\.0\.0\.1:(\d+)", told[0])
        points = re.search(r"series on 127\.0\.0\.1:(\d+)", told[0])
        self.redis_port = int(redis[1]) if redis else None
        self.http_port = int(points[1]) if points else None
        took = time.monotonic() - began
        self.longest_start = max(self.longest_start, took)
        return took

    def redis(self, timeout=60):
        return Redis(self.redis_port, timeout)

    def http(self, timeout=60):
        return Http(self.http_port, timeout)

    def admin(self, what, timeout=2):
        return admin(self.directory / "admin", what, timeout=timeout)

    def metric(self, name):
        """The sum of a family's values, or none if there are none."""
        _, text = self.admin("/metrics", timeout=10)
        found = re.findall(rf"^plimsoll_{name}(?:{{[^}}]*}})? (\S+)", text, re.MULTILINE)
        return sum(map(float, found)) if found else None

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        self.killed = True
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def signal(self, which):
        os.kill(self.process.pid, which)

    def stop(self):
        """A clean shutdown: seconds and exit status; none if it took too long and was killed."""
        began = time.monotonic()
        self.killed = True
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(STOP_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            status = None
        return time.monotonic() - began, status

    def log_end(self, lines=12):
        text = (self.directory / "log").read_text(errors="replace").splitlines()
        return "\n".join(text[-lines:])


__all__ = ["CONTRACT", "DidNotStart", "Gone", "Server", "section"]
