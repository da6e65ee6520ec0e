"""Compares `/health`, each second, with the answers of writes."""

import json
import threading
import time

from ordeal.clients import Gone

POLL = 1.0
RED_MAX = 10.0


class Writes:
    """Answers to writes of one store: their times, and whether they were accepted."""

    def __init__(self):
        self.lock = threading.Lock()
        self.answers = []

    def tell(self, taken):
        with self.lock:
            self.answers.append((time.monotonic(), taken))

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
    """Reports violations: green while writes are refused, red while they are accepted."""

    def __init__(self, server, writes, report):
        super().__init__(daemon=True)
        self.server, self.writes, self.report = server, writes, report
        self.ended = threading.Event()
        self.green_polls = dict.fromkeys(writes, 0)
        self.red_since = dict.fromkeys(writes)
        self.latest = {}

    def run(self):
        before = time.monotonic()
        while not self.ended.wait(POLL):
            began = time.monotonic()
            try:
                status, text = self.server.admin("/health")
                health = json.loads(text)
            except (Gone, ValueError):
                self.green_polls = dict.fromkeys(self.writes, 0)
                self.red_since = dict.fromkeys(self.writes)
                self.report.count("health_unanswered")
                before = began
                continue
            self.report.count("health_polls")
            self.report.at_most("health_answer_s", time.monotonic() - began)
            self.latest = health
            for store in self.writes:
                self.compare(store, takes_writes(health, store), status, before, began, text)
            before = began

    def compare(self, store, green, status, before, now, text):
        taken, refused = self.writes[store].since(before)
        if (green or status == 200) and refused and not taken:
            self.green_polls[store] += 1
            if self.green_polls[store] > 1:
                self.report.violation("green_while_refused", f"{store}: {refused} writes refused, {text[:300]}")
        else:
            self.green_polls[store] = 0
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
