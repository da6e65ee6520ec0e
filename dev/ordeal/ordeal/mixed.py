"""A mixed load on one server, under faults below and around it, one at a time and together."""

import contextlib
import random
import signal
import time

from ordeal.broker import Broker
from ordeal.clients import Gone, Refused
from ordeal.full import VALUE
from ordeal.health import Poller, Writes
from ordeal.model import ABSENT, Cells, value, version_of
from ordeal.points import Batches
from ordeal.probe import Probe, at_once
from ordeal.server import DidNotStart, Server, section
from ordeal.writers import MqttWriter, PointsWriter, RedisWriter

# How long calls may fail after two volumes were slow.
FAILS_MAX = 15
ROOM_MAX = 30
REPAIR_MAX = 180


class World:
    """The server, its writers, and their faults."""

    def __init__(self, directory, volumes, options, report):
        self.options, self.report = options, report
        self.random = random.Random(options.seed)
        # Those of the pool, and those of the series store: its own, or the pool's.
        self.kv = [volume for volume in volumes if volume.name.startswith("k")]
        self.series = [volume for volume in volumes if volume.name.startswith("s")] or self.kv
        self.volumes = volumes
        self.probes = [Probe(volume, options.timeout / 2) for volume in volumes]
        self.writes = {"kv": Writes(), "series": Writes()}
        brokers = []

        def broker_of(topic, taken):
            brokers.append(Broker(topic, taken))
            return brokers[0]

        self.writers = [RedisWriter(self, 0), RedisWriter(self, 1), PointsWriter(self, 0), MqttWriter(self, 0, broker_of)]
        self.broker = brokers[0]
        self.server = Server(directory, self.settings(), options.program)
        self.poller = Poller(self.server, self.writes, report, options.timeout)
        self.bulk = Batches(report, 500, writes=self.writes["series"], may_fail=self.may_fail)
        self.big, self.version = Cells(), 0
        # Volumes whose file system is dead, until they are mounted again.
        self.gone = set()

    def settings(self):
        def names(volumes):
            return ", ".join(f'"{volume.name}"' for volume in volumes)

        # What the store sets aside for twice its buffers has to fit beside its files: a small pool takes small buffers only.
        shared = 'pool = "main"\nmemory = "1MiB"'
        place = shared if self.series is self.kv else f'volumes = [{names(self.series)}]\nmemory = "64MiB"'
        sections = (f'{section(volume)}timeout = "{self.options.timeout}s"\n' for volume in self.volumes)
        return "".join(sections) + (
            f'[pool.main]\nvolumes = [{names(self.kv)}]\ncopies = 2\nrepair_after = "10s"\n'
            '[kv]\npool = "main"\nmemory = "128MiB"\nlisten = "127.0.0.1:0"\n'
            f'[series]\n{place}\n'
            '[http]\nlisten = "127.0.0.1:0"\n'
            f'[mqtt]\nbroker = "127.0.0.1:{self.broker.port}"\ntopics = ["plant/#"]\n'
            'database = "plant"\nprecision = "s"\n'
        )

    FAULTS = (
        "kill", "kill", "pause", "stop", "foreign", "foreign_kill", "inodes", "fill_kv", "fill_kv_kill", "fill_series",
        "fill_series_kill", "freeze", "hang", "hang", "bad_blocks", "bad_blocks_kill", "dead", "dead_kill", "dead_without",
    )

    def may_fail(self):
        """Whether two volumes were slow lately, by a fault or by this machine: the pool's manifest had no majority then."""
        return at_once(self.probes, FAILS_MAX) > 1

    def run(self):
        self.start()
        for thread in (*self.writers, *self.probes, self.poller):
            thread.start()
        self.work()
        end = time.monotonic() + self.options.minutes * 60
        only = [name for name in self.options.only.split(",") if name]
        faults = [name for name in self.FAULTS if not only or name in only]
        while time.monotonic() < end:
            time.sleep(self.random.uniform(1, 5))
            name = self.random.choice(faults)
            began = time.monotonic()
            self.report.count(f"fault_{name}")
            self.report.say(f"{name} begins")
            try:
                getattr(self, name)()
                self.recovers(name)
            except Gone as gone:
                self.restart_after(name, gone)
            self.report.at_most("probe_s", max(probe.longest for probe in self.probes))
            self.report.say(
                f"{name}, {time.monotonic() - began:.1f} s; "
                + ", ".join(f"{what} {self.report.counts.get(what, 0)}" for what in self.TOLD)
                + f"; violations {self.report.violations}"
            )
        self.rest()
        self.poller.end()
        self.stop_in_order()
        self.server.start()
        self.verify()
        for writer in self.writers:
            writer.ended = True
        for probe in self.probes:
            probe.ended.set()
            probe.join()
        self.broker.close()
        self.stop_in_order()

    TOLD = ("kv_acknowledged", "kv_refused", "series_acknowledged", "series_refused", "mqtt_acknowledged", "kills")

    def start(self):
        self.report.at_most("start_s", self.server.start())

    def work(self):
        for writer in self.writers:
            writer.may_work.set()

    def rest(self):
        """Pauses the writers; returns when no writer has a command in progress."""
        for writer in self.writers:
            writer.may_work.clear()
            writer.rests.clear()
        for writer in self.writers:
            if not writer.rests.wait(120):
                self.report.violation("no_answer", f"{type(writer).__name__} waited 120 s for an answer")
        for writes in self.writes.values():
            writes.rest()

    def verify(self):
        redis, http = self.server.redis(timeout=120), self.server.http(timeout=120)
        for writer in self.writers:
            writer.verify(redis if isinstance(writer, RedisWriter) else http)
        self.verify_big(redis)
        self.bulk.verify(http)
        redis.close()
        http.close()
        self.report.count("verifications")

    def verify_big(self, redis):
        names = list(self.big)
        for at in range(0, len(names), 40):
            part = names[at : at + 40]
            for name, found in zip(part, redis.pipeline([("GET", name) for name in part])):
                if isinstance(found, Refused):
                    self.report.violation("unreadable", f"{name}: {found[:200]}")
                    continue
                cell, version = self.big[name], version_of(name, found)
                was = cell.sure
                wrong = "damaged" if version is None else cell.check(version)
                if wrong:
                    self.report.violation(wrong, f"{name}: {version} read, {was} acknowledged")

    def again(self, between=None):
        """SIGKILL, other faults while the server is down, a start, and a check of all data."""
        self.server.kill()
        self.report.count("kills")
        self.rest()
        if between:
            between()
        self.start()
        self.verify()
        self.work()

    def restart_after(self, name, gone):
        if self.server.is_running():
            self.report.violation("no_answer", f"{name}: {gone}")
        elif not self.server.killed:
            status = self.server.process.returncode
            self.report.violation("died", f"{name}: status {status}: {self.server.log_end()}")
        for volume in self.volumes:
            volume.calm()
            if volume not in self.gone:
                volume.give_back()
        for attempt in range(3):
            try:
                return self.again(self.mount_all)
            except Gone as gone:
                self.report.violation("died", f"after {name}, start {attempt}: {gone}: {self.server.log_end()}")
        raise DidNotStart(self.server.log_end())

    def mount_all(self):
        for volume in sorted(self.gone, key=lambda volume: volume.name):
            volume.unmount()
            volume.mount()
        self.gone.clear()

    def recovers(self, name):
        """Waits until every store accepts a write, within a limit, and until copies are complete."""
        began = time.monotonic()
        waits = {"kv", "series"}
        since = began
        while waits and time.monotonic() < began + ROOM_MAX + 30:
            for store in list(waits):
                if self.writes[store].since(since)[0]:
                    waits.discard(store)
            if not self.server.is_running():
                raise Gone("the server ended")
            time.sleep(0.1)
        took = time.monotonic() - began
        self.report.at_most("recovery_s", took)
        if took > ROOM_MAX:
            self.report.violation("late", f"after {name}: {took:.1f} s until writes were taken; still refused: {waits}")
        end = time.monotonic() + REPAIR_MAX
        while (short := self.server.metric("copies_short_objects")) and time.monotonic() < end:
            time.sleep(0.5)
        self.report.at_most("repair_s", time.monotonic() - began - took)
        if short:
            self.report.violation("copies_short", f"{short:.0f} objects {REPAIR_MAX} s after {name}")

    # Faults.

    def kill(self):
        self.again()

    def pause(self):
        self.server.signal(signal.SIGSTOP)
        try:
            time.sleep(self.random.uniform(0.5, 6))
        finally:
            self.server.signal(signal.SIGCONT)

    def stop_in_order(self):
        took, status = self.server.stop()
        self.report.at_most("stop_s", took)
        if status != 0:
            self.report.violation("stop_failed", f"status {status} after {took:.0f} s: {self.server.log_end()}")

    def stop(self):
        self.stop_in_order()
        self.rest()
        self.start()
        self.verify()
        self.work()

    @contextlib.contextmanager
    def taken_by_others(self, volumes):
        """Another program fills volumes, and removes its files."""
        for volume in volumes:
            volume.fill(leave=self.random.choice([0, 0, 1 << 20]))
        try:
            yield
        finally:
            for volume in volumes:
                volume.give_back()

    def some(self):
        volumes = self.random.choice([self.kv, self.series, self.volumes])
        return self.random.sample(volumes, self.random.randint(1, len(volumes)))

    def foreign(self):
        with self.taken_by_others(self.some()):
            time.sleep(self.random.uniform(5, 20))

    def foreign_kill(self):
        with self.taken_by_others(self.some()):
            time.sleep(self.random.uniform(1, 8))
            self.again()
            time.sleep(self.random.uniform(1, 8))

    def inodes(self):
        volumes = self.some()
        for volume in volumes:
            volume.take_inodes()
        try:
            time.sleep(self.random.uniform(5, 15))
        finally:
            for volume in volumes:
                volume.give_back()

    def fill_kv(self, kill=False):
        redis = self.server.redis()
        end = time.monotonic() + 60
        refused = None
        while not refused and time.monotonic() < end:
            self.version += 1
            names = [f"big{self.version}-{n}" for n in range(8)]
            waiting = list(names)
            try:
                with self.writes["kv"].under_way():
                    for reply in redis.each([("SET", name, value(name, self.version, VALUE)) for name in names]):
                        name = waiting.pop(0)
                        self.writes["kv"].tell(reply == "OK")
                        if reply == "OK":
                            self.big[name].acknowledged(self.version)
                            continue
                        refused = reply
                        if reply.startswith("OOM "):
                            self.big[name].is_refused(self.version)
                            continue
                        self.big[name].unknown(self.version)
                        if not self.may_fail():
                            self.report.violation("wrong_refusal", f"SET: {reply[:200]}")
            finally:
                for name in waiting:
                    self.big[name].unknown(self.version)
        time.sleep(self.random.uniform(0, 8))
        if kill:
            self.again()
            redis = self.server.redis()
        names = list(self.big)
        for at in range(0, len(names), 50):
            part = names[at : at + 50]
            for name in part:
                self.big[name].unknown(ABSENT)
            replies = redis.pipeline([("DEL", name) for name in part])
            wrong = [reply for reply in replies if isinstance(reply, Refused)]
            if wrong and not self.may_fail():
                self.report.violation("delete_refused", f"DEL: {wrong[0][:200]}")
            for name, reply in zip(part, replies):
                if not isinstance(reply, Refused):
                    self.big[name].acknowledged(ABSENT)
        redis.close()

    def fill_kv_kill(self):
        self.fill_kv(kill=True)

    def fill_series(self, kill=False):
        http = self.server.http()
        end = time.monotonic() + 60
        taken = True
        while taken and time.monotonic() < end:
            self.version += 1
            taken = self.bulk.write(http, ("bulk", f"s{self.version % 10}", self.version))
        time.sleep(self.random.uniform(0, 8))
        if kill:
            self.again()
            http = self.server.http()
        self.bulk.change(http, "bulk", "DROP DATABASE bulk", list(self.bulk.cells))
        http.close()

    def fill_series_kill(self):
        self.fill_series(kill=True)

    @contextlib.contextmanager
    def hanging(self, hang):
        """One volume of the pool hangs, which fails no call, or two, without which the pool is read-only."""
        volumes = self.random.sample(self.kv, self.random.choice([1, 1, 2]))
        self.report.say("hangs: " + ", ".join(volume.name for volume in volumes))
        if len(volumes) > 1:
            self.report.count("fault_two_hang")
        try:
            for volume in volumes:
                hang(volume)
            yield
        finally:
            for volume in volumes:
                volume.calm()

    def freeze(self):
        with self.hanging(lambda volume: volume.freeze()):
            time.sleep(self.random.uniform(1, 10))

    def hang(self):
        """The device answers nothing, also no reads, and comes back."""
        with self.hanging(lambda volume: volume.disk.hang()):
            time.sleep(self.random.uniform(1, 25))

    def bad_blocks(self, kill=False):
        """Ranges of a device give EIO; no call of a client may fail. The file system is mended if they were its own."""
        volume = self.random.choice(self.kv)
        ranges = volume.fail_some(self.random)
        self.report.say(f"{volume.name}: {', '.join(f'{(end - first) >> 10} KiB at {first}' for first, end in ranges)}")
        try:
            time.sleep(self.random.uniform(5, 20))
            if kill:
                try:
                    self.again()
                except DidNotStart as failed:
                    self.report.violation("did_not_start", f"beside bad blocks of {volume.name}: {failed}")
                    volume.calm()
                    self.again()
            else:
                self.rest()
                self.verify()
                self.work()
            time.sleep(self.random.uniform(1, 5))
        finally:
            volume.calm()
        if not volume.works():
            self.report.count("file_systems_mended")
            self.gone.add(volume)
            self.again(self.mount_all)

    def bad_blocks_kill(self):
        self.bad_blocks(kill=True)

    def dies(self, kill, without=False):
        """A volume of the pool fails under load; no call of a client may fail. It is back after a restart."""
        volume = self.random.choice(self.kv)
        self.gone.add(volume)
        volume.kill()
        time.sleep(self.random.uniform(1, 15))
        if without:
            self.again(volume.unmount)
            time.sleep(self.random.uniform(1, 20))
        if kill:
            self.again(self.mount_all)
        else:
            self.stop_in_order()
            self.rest()
            self.mount_all()
            self.start()
            self.verify()
            self.work()

    def dead(self):
        self.dies(kill=False)

    def dead_kill(self):
        self.dies(kill=True)

    def dead_without(self):
        self.dies(kill=True, without=True)
