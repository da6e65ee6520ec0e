"""Writers of a mixed load. Each has its own keys, so that it knows their values."""

import random
import threading
import time

from ordeal.clients import Gone, Refused
from ordeal.model import ABSENT, Cells, value, version_of
from ordeal.points import START, Batches


class Writer(threading.Thread):
    """Works until the end; pauses while data is checked, and while the server is down."""

    def __init__(self, world, number):
        super().__init__(daemon=True)
        self.world, self.number, self.report = world, number, world.report
        self.random = random.Random(f"{world.options.seed} {type(self).__name__} {number}")
        self.client, self.may_work, self.rests = None, threading.Event(), threading.Event()
        self.ended = False

    def run(self):
        while not self.ended:
            if not self.may_work.is_set():
                self.rests.set()
                self.may_work.wait(0.2)
                continue
            self.rests.clear()
            try:
                if self.client is None:
                    self.client = self.connect()
                began = time.monotonic()
                self.work()
                time.sleep(max(0.0, self.pause() - (time.monotonic() - began)))
            except Gone:
                self.forget()
                time.sleep(0.1)
            except Exception as error:
                self.report.violation("harness", f"{type(self).__name__}: {error!r}")
                self.forget()
                time.sleep(1)

    def forget(self):
        if self.client is not None:
            self.client.close()
        self.client = None

    def pause(self):
        return self.per_step / self.world.options.rate

    per_step = 10


class RedisWriter(Writer):
    """Strings, some that expire, hashes and sorted sets, in pipelines and transactions."""

    KEYS = 400

    def __init__(self, world, number):
        super().__init__(world, number)
        self.cells, self.version = Cells(), 0

    def connect(self):
        return self.world.server.redis(timeout=90)

    def cells_of(self, key):
        """Every cell that a key may have."""
        if key[0] == "s":
            return [(key, None)]
        return [(key, f"f{n}") for n in range(6)]

    def command(self):
        """A command, its changes of cells, whether it deletes, and their time to live (milliseconds)."""
        key = f"{self.random.choice('sshz')}{self.number}:{self.random.randrange(self.KEYS)}"
        self.version += 1
        version, choice = self.version, self.random.random()
        if choice < 0.12:
            return ("DEL", key), [(cell, ABSENT) for cell in self.cells_of(key)], True, None
        if key[0] == "s":
            written = value(f"{key}/None", version, self.random.randrange(100, 6000))
            if choice < 0.3:
                lives = self.random.randrange(500, 20_000)
                return ("SET", key, written, "PX", lives), [((key, None), version)], False, lives
            return ("SET", key, written), [((key, None), version)], False, None
        field = f"f{self.random.randrange(6)}"
        if choice < 0.25:
            verb = "HDEL" if key[0] == "h" else "ZREM"
            return (verb, key, field), [((key, field), ABSENT)], True, None
        if key[0] == "h":
            written = value(f"{key}/{field}", version, self.random.randrange(50, 2000))
            return ("HSET", key, field, written), [((key, field), version)], False, None
        return ("ZADD", key, version, field), [((key, field), version)], False, None

    def work(self):
        steps = [self.command() for _ in range(self.per_step)]
        if self.random.random() < 0.1:
            self.transaction(steps[:4])
            return
        waiting = list(steps)
        sent = time.time()
        try:
            with self.world.writes["kv"].under_way():
                for reply in self.client.each([step[0] for step in steps]):
                    self.settle(waiting.pop(0), reply, sent)
        finally:
            self.unknown(waiting, sent)

    def unknown(self, steps, sent):
        for _, cells, _, lives in steps:
            until = (sent + lives / 1000, time.time() + lives / 1000) if lives else None
            for cell, version in cells:
                self.cells[cell].unknown(version, until)

    def transaction(self, steps):
        sent = time.time()
        try:
            with self.world.writes["kv"].under_way():
                replies = self.client.pipeline([("MULTI",), *(step[0] for step in steps), ("EXEC",)])
        except Gone:
            self.unknown(steps, sent)
            raise
        done = replies[-1]
        self.report.count("transactions")
        for step, reply in zip(steps, [done] * len(steps) if isinstance(done, Refused) or done is None else done):
            only_deletes = all(step[2] for step in steps)
            self.settle(step, reply, sent, excused=not only_deletes)

    def settle(self, step, reply, sent, excused=False):
        (verb, *_), cells, deletes, lives = step
        if isinstance(reply, Refused):
            room = reply.startswith("OOM ") or excused and reply.startswith("EXECABORT")
            if not deletes:
                self.report.count("kv_refused")
                self.world.writes["kv"].tell(False)
                if room:
                    for cell, version in cells:
                        self.cells[cell].is_refused(version)
                    return
            elif excused:
                return
            # It may or may not have been stored.
            self.unknown([step], sent)
            self.report.count("kv_unavailable")
            if not self.world.may_fail():
                kind = "delete_refused" if deletes else "wrong_refusal"
                self.report.violation(kind, f"{verb}: {reply[:200]}")
            return
        now = time.time()
        for cell, version in cells:
            until = (sent + lives / 1000, now + lives / 1000) if lives else None
            self.cells[cell].acknowledged(version, until)
        self.report.count("kv_acknowledged")
        if not deletes:
            self.world.writes["kv"].tell(True)

    def verify(self, client):
        names = sorted(self.cells, key=str)
        for at in range(0, len(names), 100):
            part = names[at : at + 100]
            asked = time.time()
            for (key, field), found in zip(part, client.pipeline([ask(*name) for name in part])):
                if isinstance(found, Refused):
                    self.report.violation("unreadable", f"{key} {field}: {found[:200]}")
                    continue
                if key[0] == "z":
                    version = int(float(found)) if found is not None else ABSENT
                else:
                    version = version_of(f"{key}/{field}", found)
                cell = self.cells[(key, field)]
                was, maybe = cell.sure, set(cell.maybe)
                wrong = "damaged" if version is None else cell.check(version, asked)
                if wrong:
                    self.report.violation(wrong, f"{key} {field}: {version} read, {was} acknowledged, perhaps {maybe}")
        self.report.count("kv_verified", len(names))


def ask(key, field):
    if key[0] == "s":
        return ("GET", key)
    return ("HGET" if key[0] == "h" else "ZSCORE", key, field)


class PointsWriter(Writer):
    """Batches of points over HTTP, some overwritten, some deleted."""

    per_step = 40
    BLOCKS = 60

    def __init__(self, world, number):
        super().__init__(world, number)
        self.batches = Batches(world.report, 40, 4, world.writes["series"], world.may_fail)

    def connect(self):
        return self.world.server.http(timeout=90)

    def work(self):
        source = f"w{self.number}-{self.random.randrange(6)}"
        if self.random.random() < 0.01:
            names = [name for name in self.batches.cells if name[1] == source]
            verb = self.random.choice(["DELETE", "DROP SERIES"])
            self.batches.change(self.client, "plant", f"{verb} FROM m WHERE src='{source}'", names)
            return
        name = ("plant", source, self.random.randrange(self.BLOCKS))
        self.batches.write(self.client, name)

    def verify(self, client):
        self.batches.verify(client)


class MqttWriter(Writer):
    """Messages of one point each; acknowledged ones must be there."""

    per_step = 5

    def __init__(self, world, number, broker_of):
        super().__init__(world, number)
        self.broker = broker_of("plant/pump", self.taken)
        self.sent, self.acknowledged = 0, set()

    def connect(self):
        return self.broker

    def forget(self):
        self.client = None

    def taken(self, message):
        self.acknowledged.add(message)
        self.report.count("mqtt_acknowledged")

    def work(self):
        for _ in range(self.per_step):
            line = f"q,src=mqtt v={self.sent}i {START + self.sent}"
            if self.broker.publish(self.sent, line.encode()):
                self.sent += 1

    def verify(self, client):
        acknowledged = set(self.acknowledged)
        rows, wrong = client.select("plant", "SELECT \"v\" FROM q WHERE src='mqtt'")
        if wrong and acknowledged:
            self.report.violation("unreadable", f"mqtt: {wrong[:200]}")
            return
        found = {int(row[-2]) - START: int(row[-1]) for row in rows}
        lost = [number for number in acknowledged if found.get(number) != number]
        if lost:
            self.report.violation("lost", f"{len(lost)} messages of {len(acknowledged)}: {sorted(lost)[:10]}")
        self.report.count("mqtt_verified", len(acknowledged))
