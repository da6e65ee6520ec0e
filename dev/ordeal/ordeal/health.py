"""Compares `/health`, each second, with the answers of writes.

No poll is green from the device limit and `GREEN_MAX` on after a write was refused, or was sent and hangs, until a write
is taken again.
"""

import contextlib
import json
import threading
import time

from ordeal.clients import Gone

POLL = 1.0
RED_MAX = 10.0
GREEN_MAX = 2.0


class Writes:
    """Writes of one store: those under way, and the times of answers and whether they were accepted."""

    def __init__(self):
        self.lock = threading.Lock()
        self.answers, self.sent = [], []
        self.taken_at, self.refused_since = 0.0, None

    @contextlib.contextmanager
    def under_way(self):
        """A request that writes, until it is answered or its connection ends."""
        sent = time.monotonic()
        with self.lock:
            self.sent.append(sent)
        try:
            yield
        finally:
            with self.lock:
                self.sent.remove(sent)

    def tell(self, taken):
        now = time.monotonic()
        with self.lock:
            self.answers.append((now, taken))
            if taken:
                self.taken_at, self.refused_since = now, None
            elif self.refused_since is None:
                self.refused_since = now

    def not_taken_since(self):
        """The moment since which every write was refused or hangs; none if the last one was taken."""
        with self.lock:
            begins = [*self.sent] if self.refused_since is None else [*self.sent, self.refused_since]
            return max(min(begins), self.taken_at) if begins else None

    def shows_trouble_after(self, moment):
        """Whether a write was refused after the moment, or one sent before it has no answer yet."""
        with self.lock:
            refused = any(when > moment and not taken for when, taken in self.answers)
            return refused or any(sent < moment for sent in self.sent)

    def rest(self):
        """Nobody writes from now on, so the last refusal says nothing of the time that follows."""
        with self.lock:
            self.refused_since = None

    def since(self, moment):
        """The numbers of writes accepted and refused after that moment."""
        with self.lock:
            self.answers = [answer for answer in self.answers if answer[0] > time.monotonic() - 60]
            recent = [taken for when, taken in self.answers if when > moment]
        return sum(recent), len(recent) - sum(recent)

    def last_refusal(self):
        with self.lock:
            return max((when for when, taken in self.answers if not taken), default=0.0)

    def taken_between(self, begin, end):
        with self.lock:
            return sum(taken for when, taken in self.answers if begin <= when < end)


class Poller(threading.Thread):
    """Reports violations: green while writes are refused or hang, red while they are accepted."""

    def __init__(self, server, writes, report, timeout):
        super().__init__(daemon=True)
        self.server, self.writes, self.report = server, writes, report
        self.green_max = timeout + GREEN_MAX
        self.ended = threading.Event()
        # Of a store and kind: a green poll that the next poll judges, when later writes have shown whether it was right.
        self.suspects = {}
        # A server that does not answer, because it is stopped or starts, is not judged for that time.
        self.answers_since = time.monotonic()
        self.red_since = dict.fromkeys(writes)
        self.latest = {}

    def run(self):
        while not self.ended.wait(POLL):
            began = time.monotonic()
            try:
                status, text = self.server.admin("/health")
                health = json.loads(text)
            except (Gone, ValueError):
                self.answers_since = time.monotonic()
                self.suspects.clear()
                self.red_since = dict.fromkeys(self.writes)
                self.report.count("health_unanswered")
                continue
            self.report.count("health_polls")
            self.report.at_most("health_answer_s", time.monotonic() - began)
            self.latest = health
            for store in self.writes:
                green = takes_writes(health, store)
                self.judge("green_while_refused", store, status == 200, began, text)
                self.judge("ready_while_refused", store, green, began, text)
                self.compare(store, green, began, text)

    def judge(self, kind, store, green, asked, text):
        """Remembers a green poll that seems wrong, and reports the one before if writes after it met the same trouble."""
        since = self.writes[store].not_taken_since()
        since = since and max(since, self.answers_since)
        suspect = self.suspects.pop((kind, store), None)
        if since is None:
            return
        self.report.at_most(f"not_taken_s_{store}", asked - since)
        if suspect and suspect[0] >= since and self.writes[store].shows_trouble_after(suspect[0]):
            when, said = suspect
            self.report.violation(kind, f"{store}: no write was taken for {when - since:.1f} s, {said[:300]}")
        if green and asked - since > self.green_max:
            self.suspects[kind, store] = asked, text

    def compare(self, store, green, now, text):
        if green or green is None:
            self.red_since[store] = None
            return
        self.report.count(f"health_red_{store}")
        self.red_since[store] = self.red_since[store] or now
        # Red now, although every write was accepted for this long, with writes in each half of the time.
        calm = max(self.red_since[store], self.writes[store].last_refusal())
        half = now - RED_MAX / 2
        if now - calm > RED_MAX + POLL and self.writes[store].taken_between(now - RED_MAX, half) and self.writes[
            store
        ].taken_between(half, now):
            self.report.violation("red_while_taken", f"{store}: for {now - calm:.0f} s, {text[:300]}")
            self.red_since[store] = now

    def end(self):
        self.ended.set()
        self.join()


def takes_writes(health, store):
    """The health of a store; none if there is none."""
    of = health.get("stores", {}).get(store)
    if of is None or "takes_writes" not in of:
        return True if health.get("healthy") else None
    return bool(of["takes_writes"])
