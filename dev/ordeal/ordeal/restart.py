"""Starts of a large series store: after SIGKILL, and after an orderly stop of the same data."""

import json
import multiprocessing
import os
import random
import shutil
import tempfile
import time
from pathlib import Path

from ordeal.clients import Gone, Http
from ordeal.points import POINT_BYTES, START, integers
from ordeal.report import Report
from ordeal.server import CONTRACT, DidNotStart, Server

CLIENTS = 4
SOURCES = 250  # of each client
ROWS = 5000
# A start after SIGKILL may take this many times as long as an orderly one. Below a second it is the machine's noise.
RATIO_MAX = 1.5
START_MAX = 1200
ANSWER_MAX = 60
NOISE_S = 1.0
COPIES = 2


def settings(directory):
    volumes = "".join(
        f'[volume.{name}]\npath = "{directory}/{name}"\ncontract = {CONTRACT}\nadapt = false\n' for name in "abc"
    )
    return volumes + (
        f'[pool.main]\nvolumes = ["a", "b", "c"]\ncopies = {COPIES}\n'
        '[series]\npool = "main"\n[http]\nlisten = "127.0.0.1:0"\n'
    )


def send(port, client, first, stop, sent, unanswered):
    """One client: batches of points in order of time, each of 20 sources, until it is told to stop."""
    fields = [
        ",".join(f"f{n}={value}i" for n, value in enumerate(values)) for values in integers(("start", client), 0, 4000)
    ]
    http, draw, batch = Http(port, timeout=ANSWER_MAX), random.Random(client), first
    while not stop.is_set():
        names = [f"c{client}-{(batch * 20 + n) % SOURCES}" for n in range(20)]
        at, shift = START + batch * 100, draw.randrange(4000)
        lines = [f"m,src={names[n % 20]} {fields[(shift + n) % 4000]} {at + n // 20}" for n in range(ROWS)]
        try:
            status, text = http.write("big", lines)
        except Gone:
            # A run that kills the server tells its clients to stop. Points may be sent again.
            if stop.wait(10):
                return
            unanswered[client] += 1
            continue
        if status == 503:
            time.sleep(0.2)
            continue
        if status != 204:
            raise RuntimeError(f"{status} {text}")
        batch += 1
        sent[client] = batch


class Starts:
    def __init__(self, directory, options, report):
        self.directory, self.options, self.report = directory, options, report
        for name in "abc":
            (directory / name).mkdir()
        self.server = Server(directory, settings(directory), options.program, START_MAX)
        self.sent, self.unanswered = multiprocessing.Array("q", CLIENTS), multiprocessing.Array("q", CLIENTS)
        self.starts = []

    def bytes(self):
        """The values of all points; those of one copy."""
        return sum(self.sent) * ROWS * POINT_BYTES

    def fill(self, until):
        """Writes until the store holds so many bytes; the clients still write when this returns."""
        stop = multiprocessing.Event()
        clients = [
            multiprocessing.Process(
                target=send, daemon=True,
                args=(self.server.http_port, n, self.sent[n], stop, self.sent, self.unanswered),
            )
            for n in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        told = time.monotonic()
        while self.bytes() < until:
            time.sleep(0.5)
            if time.monotonic() > told + 20:
                told = time.monotonic()
                self.report.say(f"{self.bytes() / 1e9:.2f} GB, {sum(self.sent) * ROWS / 1e6:.1f} million points")
            if not self.server.is_running() or not all(client.is_alive() for client in clients):
                raise Gone(f"a client or the server ended: {self.server.log_end()}")
        if any(self.unanswered):
            text = f"writes of each client without an answer in {ANSWER_MAX} s: {self.unanswered[:]}; sent: {self.sent[:]}"
            self.report.violation("no_answer", text)
        return stop, clients

    def measure(self, after):
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")
        began = time.monotonic()
        self.server.start()
        self.server.admin("/health", timeout=60)
        health = time.monotonic() - began
        rows, wrong = self.server.http(timeout=120).select("big", "SELECT count(\"f0\") FROM m WHERE src='c0-0'")
        query = time.monotonic() - began
        if wrong or not rows:
            self.report.violation("unreadable", f"after {after}: {wrong or 'no rows'}")
        words = Path(f"/proc/{self.server.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        cpu = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
        io = dict(line.split(": ") for line in Path(f"/proc/{self.server.process.pid}/io").read_text().splitlines())
        start = {
            "after": after, "gb": round(self.bytes() / 1e9, 2), "health_s": round(health, 2), "query_s": round(query, 2),
            "cpu_s": round(cpu, 2),
            "read_mb": int(io["read_bytes"]) >> 20, "rchar_mb": int(io["rchar"]) >> 20,
            "points": int(rows[0][-1]) if rows else 0,
        }
        self.starts.append(start)
        self.report.say(json.dumps(start))
        return query

    def run(self):
        self.server.start()
        goal = int(self.options.gb * 1e9)
        for number in range(self.options.rounds):
            # Each round adds some, so that both starts follow writes.
            stop, clients = self.fill(goal + number * goal // 10)
            self.server.kill()
            stop.set()
            for client in clients:
                client.join()
            killed = self.measure("SIGKILL")
            stop, clients = self.fill(self.bytes() + goal // 20)
            stop.set()
            for client in clients:
                client.join()
            took, status = self.server.stop()
            self.report.at_most("stop_s", took)
            if status != 0:
                self.report.violation("stop_failed", f"status {status}: {self.server.log_end()}")
            orderly = self.measure("stop")
            self.report.at_most("ratio", killed / orderly)
            if killed > max(RATIO_MAX * orderly, NOISE_S):
                self.report.violation("slow_start", f"{killed:.1f} s after SIGKILL, {orderly:.1f} s after an orderly stop")


def run(options):
    report = Report(f"start, {options.gb:g} GB")
    directory = Path(tempfile.mkdtemp(prefix="plimsoll-ordeal-", dir=options.dir))
    starts = Starts(directory, options, report)
    try:
        starts.run()
    except DidNotStart as failed:
        report.violation("did_not_start", str(failed))
    except Gone as gone:
        report.violation("no_answer", str(gone))
    finally:
        starts.server.kill()
        print(json.dumps({**report.summary(), "starts": starts.starts}), flush=True)
        if report.is_good() and not options.keep:
            shutil.rmtree(directory)
        else:
            report.say(f"kept {directory}")
    return report.is_good()
