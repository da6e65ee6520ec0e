"""Fill until writes are refused, delete 90 %, refill."""

import json
import random
import threading
import time

from ordeal.clients import Gone, Refused
from ordeal.model import ABSENT, Cells, value, version_of
from ordeal.points import Batches
from ordeal.server import DidNotStart, Server, section

VALUE = 100_000
PIPELINE = 8
ROOM_MAX = 30


def server(store, directory, volumes, program):
    """The server of a run of one of the classes below."""
    names = json.dumps([volume.name for volume in volumes])
    return Server(directory, "".join(map(section, volumes)) + store.SETTINGS.format(names=names), program)


class Round:
    """The common part of the runs of both stores: a server that may be killed at any moment, and restarts."""

    # Of the volumes, this part must be data when writes are refused.
    SHARE_MIN = 0.70

    def __init__(self, server, volumes, options, report):
        self.volumes, self.report, self.options = volumes, report, options
        self.random, self.server = random.Random(options.seed), server
        self.bytes = sum(volume.bytes() for volume in volumes)
        self.timer, self.client = None, None

    def started(self):
        self.report.at_most("start_s", self.server.start())
        self.client = self.connect()

    def aim(self, within):
        """Kills the server at a random moment of the next `within` seconds, if this run kills."""
        self.disarm()
        if self.options.kill:
            self.timer = threading.Timer(self.random.uniform(0, within), self.server.kill)
            self.timer.daemon = True
            self.timer.start()

    def disarm(self):
        if self.timer is not None:
            self.timer.cancel()
            self.timer.join()
            self.timer = None

    def guarded(self, phase, within=None):
        """Runs a phase to its end, also across crashes of the server."""
        if within is not None:
            self.aim(within)
        while True:
            try:
                result = phase()
                self.disarm()
                if not self.server.is_running():
                    self.recover()
                return result
            except Gone as gone:
                self.recover(gone)

    def recover(self, gone=None):
        self.disarm()
        if not self.server.killed:
            if self.server.is_running():
                self.report.violation("no_answer", f"{gone}")
                self.server.kill()
            else:
                status = self.server.process.returncode
                self.report.violation("died", f"status {status}: {self.server.log_end()}")
        self.report.count("kills")
        for _ in range(3):
            try:
                self.started()
                return self.verify()
            except Gone as gone:
                self.report.violation("died", f"after a start: {gone}: {self.server.log_end()}")
                self.server.kill()
        raise DidNotStart(self.server.log_end())

    def orderly(self):
        """A clean shutdown on a full volume, and a start."""
        took, status = self.server.stop()
        self.report.at_most("stop_s", took)
        if status != 0:
            self.report.violation("stop_failed", f"status {status}: {self.server.log_end()}")
        self.report.count("orderly_ends")
        self.started()

    def run(self):
        self.started()
        for number in range(self.options.rounds):
            self.number, began = number, time.monotonic()
            share = self.guarded(self.fill, 20)
            self.guarded(self.refused)
            if number % 4 == 3:
                self.orderly()
                self.guarded(self.verify)
            self.guarded(self.delete, 3)
            self.deleted = time.monotonic()
            room = self.guarded(self.room)
            self.guarded(self.verify)
            self.report.count("rounds")
            self.report.say(
                f"{self.report.name} round {number + 1}: {share:.0%} of the volumes were data, room after {room:.1f} s, "
                f"{time.monotonic() - began:.0f} s in all, violations {self.report.violations}"
            )
        self.orderly()
        self.verify()
        took, status = self.server.stop()
        if status != 0:
            self.report.violation("stop_failed", f"status {status}: {self.server.log_end()}")

    deleted = 0.0

    def fill(self):
        """Writes until writes are refused for good; returns the share of data on the volumes."""
        before = self.live() / self.bytes
        refused_at = None
        while True:
            if self.write_some():
                continue
            share, now = self.live() / self.bytes, time.monotonic()
            refused_at = refused_at or now
            # Deleted space is free within this time.
            if share >= self.SHARE_MIN or now > max(refused_at, self.deleted) + ROOM_MAX:
                break
            time.sleep(0.5)
        self.report.at_least("share", share)
        if share < self.SHARE_MIN:
            self.report.violation("share", f"{share:.1%} of the volumes are data (was {before:.1%}): {self.said}")
        return share

    def room(self):
        """Seconds until a write of the same size is taken again."""
        while not self.write_some():
            if time.monotonic() > self.deleted + ROOM_MAX + 30:
                self.report.violation("no_room", f"{time.monotonic() - self.deleted:.0f} s after the delete: {self.said}")
                break
            time.sleep(0.25)
        took = time.monotonic() - self.deleted
        self.report.at_most("room_back_s", took)
        if took > ROOM_MAX:
            self.report.violation("room_late", f"{took:.1f} s")
        return took

    said = ""


class Kv(Round):
    """SETs of 100 KB to a store on volumes that fill up."""

    SETTINGS = '[pool.main]\nvolumes = {names}\n[kv]\npool = "main"\nlisten = "127.0.0.1:0"\n'

    def __init__(self, server, volumes, options, report):
        super().__init__(server, volumes, options, report)
        self.cells, self.version, self.next = Cells(), 0, 0

    def connect(self):
        return self.server.redis()

    def live(self):
        return len(self.cells.present()) * VALUE

    def set(self, keys):
        """A pipeline of SETs; whether all were accepted."""
        sent = []
        for key in keys:
            self.version += 1
            sent.append((key, self.version))
        waiting, taken = list(sent), True
        try:
            for reply in self.client.each([("SET", key, value(key, v, VALUE)) for key, v in sent]):
                key, version = waiting.pop(0)
                if reply == "OK":
                    self.cells[key].acknowledged(version)
                    self.report.count("kv_acknowledged")
                    continue
                taken = False
                self.cells[key].is_refused(version)
                self.report.count("kv_refused")
                self.said = reply
                if not reply.startswith("OOM "):
                    self.report.violation("wrong_refusal", f"SET: {reply[:200]}")
        except Gone:
            for key, version in waiting:
                self.cells[key].unknown(version)
            raise
        return taken

    def write_some(self):
        """New keys, and a few existing ones."""
        keys = [f"k{self.next + n}" for n in range(PIPELINE)]
        self.next += PIPELINE
        present = self.cells.present() if self.random.random() < 0.1 else []
        if present:
            keys[0] = self.random.choice(present)
        return self.set(keys)

    def drop(self, commands, keys):
        """Executes commands that delete these keys, one each or all of them together."""
        began = time.monotonic()
        try:
            replies = self.client.pipeline(commands)
        except Gone:
            for key in keys:
                self.cells[key].unknown(ABSENT)
            raise
        self.report.at_most("kv_delete_s", time.monotonic() - began)
        wrong = [reply for reply in replies if isinstance(reply, Refused)]
        for key in keys:
            if wrong:
                self.cells[key].unknown(ABSENT)
            else:
                self.cells[key].acknowledged(ABSENT)
        if wrong:
            self.report.violation("delete_refused", f"{commands[-1][0]}: {wrong[0][:200]}")
        self.report.count("kv_deletes", len(keys))
        return not wrong

    def refused(self):
        """At the moment of the refusal: deletes are taken, and what was refused is not there."""
        one, *three = self.random.sample(self.cells.present(), 4)
        self.drop([("DEL", one)], [one])
        self.drop([("MULTI",), *(("DEL", key) for key in three), ("EXEC",)], three)
        last = [key for key, cell in self.cells.items() if cell.refused][-50:]
        self.read(last + self.random.sample(self.cells.present(), 50))

    def delete(self):
        if self.number % 5 == 4:
            self.drop([("FLUSHALL",)], self.cells.present())
            return
        present = self.cells.present()
        self.random.shuffle(present)
        gone = present[: len(present) * 9 // 10]
        for at in range(0, len(gone), 50):
            keys = gone[at : at + 50]
            self.drop([("DEL", key) for key in keys], keys)

    def read(self, keys):
        replies = self.client.pipeline([("GET", key) for key in keys])
        for key, found in zip(keys, replies):
            cell = self.cells[key]
            was = cell.sure
            if isinstance(found, Refused):
                self.report.violation("unreadable", f"{key}: {found[:200]}")
                continue
            version = version_of(key, found)
            wrong = "damaged" if version is None else cell.check(version)
            if wrong:
                self.report.violation(wrong, f"{key}: {version} read, {was} acknowledged")

    def verify(self):
        keys = list(self.cells)
        for at in range(0, len(keys), 40):
            self.read(keys[at : at + 40])
        self.report.count("kv_verified", len(keys))
        count, present = self.client("DBSIZE"), len(self.cells.present())
        if count != present:
            self.report.violation("count", f"DBSIZE is {count}, {present} keys are there")


class Series(Round):
    """Batches of points to a store on volumes that fill up."""

    ROWS = 500
    SOURCES = 20

    SETTINGS = (
        '[volume.k]\npath = "k"\ncontract = "unlimited"\nsimulate = true\n'
        '[pool.main]\nvolumes = ["k"]\n'
        '[kv]\npool = "main"\nmemory = "32MiB"\nlisten = "127.0.0.1:0"\n'
        '[series]\nvolumes = {names}\n'
        '[http]\nlisten = "127.0.0.1:0"\n'
    )

    def __init__(self, server, volumes, options, report):
        super().__init__(server, volumes, options, report)
        self.batches, self.next = Batches(report, self.ROWS), 0

    def connect(self):
        return self.server.http()

    def live(self):
        return self.batches.live()

    def write_some(self):
        source, block = self.next % self.SOURCES, self.next // self.SOURCES
        # One source in ten is kept; once it is complete, it is overwritten now and then.
        kept = self.batches.cells.present() if source % 10 == 0 else []
        kept = [name for name in kept if name[0] == "keep"]
        name = ("keep" if source % 10 == 0 else "bulk", f"s{source}", block)
        if self.number and source % 10 == 0 and kept:
            name = self.random.choice(kept)
        taken = self.batches.write(self.client, name)
        if taken:
            self.next += 1
        else:
            self.said = "507"
        return taken

    def refused(self):
        """At the moment of the refusal: deletes are taken, and what was refused is not there."""
        last = [name for name, cell in self.batches.cells.items() if cell.refused][-3:]
        self.batches.verify(self.client, lambda name: any(name[:2] == other[:2] for other in last))
        bulk = [name for name in self.batches.cells.present() if name[0] == "bulk"]
        if bulk:
            source = self.random.choice(bulk)[1]
            self.forget(f"DELETE FROM m WHERE src='{source}'", lambda name: name[1] == source)

    def forget(self, statement, which):
        names = [name for name in self.batches.cells if name[0] == "bulk" and which(name)]
        return self.batches.change(self.client, "bulk", statement, names)

    def delete(self):
        how = self.number % 4
        if how == 1:
            self.forget("DROP DATABASE bulk", lambda name: True)
        elif how == 3:
            self.forget(f"DELETE FROM m WHERE time < {2_000_000_000}s", lambda name: True)
        else:
            verb = "DELETE" if how == 0 else "DROP SERIES"
            for source in sorted({name[1] for name in self.batches.cells if name[0] == "bulk"}):
                self.forget(f"{verb} FROM m WHERE src='{source}'", lambda name: name[1] == source)

    def verify(self):
        self.batches.verify(self.client)


class Shared(Round):
    """Both stores on one pool with two copies of everything."""

    # Each has a log and a reserve of its own, and after a crash files that it had not sealed.
    SHARE_MIN = 0.60

    SETTINGS = (
        '[pool.main]\nvolumes = {names}\ncopies = 2\n'
        '[kv]\npool = "main"\nlisten = "127.0.0.1:0"\n'
        '[series]\npool = "main"\n'
        '[http]\nlisten = "127.0.0.1:0"\n'
    )

    def __init__(self, server, volumes, options, report):
        super().__init__(server, volumes, options, report)
        self.bytes //= 2
        self.stores = [store(server, volumes, options, report) for store in (Kv, Series)]

    def connect(self):
        for store in self.stores:
            store.client = store.connect()

    def live(self):
        return sum(store.live() for store in self.stores)

    def fill(self):
        for store in self.stores:
            store.number = self.number
        return super().fill()

    def write_some(self):
        """Whether one of them took some."""
        taken = [store.write_some() for store in self.stores]
        self.said = "; ".join(store.said for store in self.stores)
        return any(taken)

    def refused(self):
        for store in self.stores:
            store.refused()

    def delete(self):
        for store in self.stores:
            store.delete()

    def verify(self):
        for store in self.stores:
            store.verify()
