"""The counters and violations of a run."""

import json
import sys
import threading
import time


# Reported also when 0.
KINDS = (
    "lost", "stale", "resurrected", "visible_though_refused", "damaged", "did_not_start", "delete_refused",
    "green_while_refused", "ready_while_refused", "red_while_taken",
)


class Report:
    """Counts by name, the largest of some figures, and violations, each of which fails the run."""

    def __init__(self, name, quiet=False):
        self.name, self.quiet = name, quiet
        self.began = time.monotonic()
        self.counts, self.largest, self.smallest, self.violations, self.texts = {}, {}, {}, {}, []
        self.lock = threading.Lock()

    def count(self, what, by=1):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + by

    def at_most(self, what, value):
        with self.lock:
            self.largest[what] = max(self.largest.get(what, value), round(value, 3))

    def at_least(self, what, value):
        with self.lock:
            self.smallest[what] = min(self.smallest.get(what, value), round(value, 3))

    def violation(self, kind, text):
        with self.lock:
            self.violations[kind] = self.violations.get(kind, 0) + 1
            if self.violations[kind] <= 10:
                text = f"{self.seconds():7.1f} s  {kind}: {text}"
                self.texts.append(text)
                print(f"VIOLATION {text}", file=sys.stderr, flush=True)

    def say(self, text):
        if not self.quiet:
            print(f"{self.seconds():7.1f} s  {text}", file=sys.stderr, flush=True)

    def seconds(self):
        return time.monotonic() - self.began

    def is_good(self):
        return not self.violations

    def json(self):
        return json.dumps(self.summary())

    def summary(self):
        return {
            "run": self.name,
            "good": self.is_good(),
            "seconds": round(self.seconds(), 1),
            "counts": self.counts,
            "largest": self.largest,
            "smallest": self.smallest,
            "violations": {**dict.fromkeys(KINDS, 0), **self.violations},
            "first": self.texts,
        }
