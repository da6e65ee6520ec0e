"""Points of the series store, in batches whose versions are checked."""

import random
import time

from ordeal.clients import Gone
from ordeal.health import Writes
from ordeal.model import ABSENT, Cells

START = 1_700_000_000
FIELDS = 10
# Integers of 63 random bits, which no store can compress.
POINT_BYTES = FIELDS * 8
BUSY_MAX = 30


def integers(name, version, rows, fields=FIELDS):
    """The fields of a batch's rows."""
    bits = random.Random(f"{name} {version}").getrandbits
    return [[bits(63) for _ in range(fields)] for _ in range(rows)]


class Batches:
    """A cell for each batch of `rows` points of one source: (database, source, block)."""

    def __init__(self, report, rows, fields=FIELDS, writes=None, may_fail=lambda: False):
        self.report, self.rows, self.fields = report, rows, fields
        # Writes under way and their answers, for `/health`; whether calls may fail at the moment.
        self.writes, self.may_fail = writes or Writes(), may_fail
        self.cells, self.version = Cells(), 0

    def lines(self, name, version):
        _, source, block = name
        at = START + block * self.rows
        lines = []
        for row, values in enumerate(integers(name, version, self.rows, self.fields)):
            fields = ",".join(f"f{n}={value}i" for n, value in enumerate(values))
            lines.append(f"m,src={source} v={version}i,{fields} {at + row}")
        return lines

    def write(self, http, name):
        """Writes a newer version of a batch: `True` if it was accepted, `False` if there is no space."""
        self.version += 1
        version, cell = self.version, self.cells[name]
        lines = self.lines(name, version)
        end = time.monotonic() + BUSY_MAX
        while True:
            try:
                with self.writes.under_way():
                    status, text = http.write(name[0], lines)
            except Gone:
                cell.unknown(version)
                raise
            self.writes.tell(status == 204)
            if status == 204:
                cell.acknowledged(version)
                self.report.count("series_acknowledged", self.rows)
                return True
            if status == 503 and "busy" not in text:
                # It may have been stored, and is sent again.
                cell.unknown(version)
                self.report.count("series_unavailable")
                if not self.may_fail():
                    self.report.violation("wrong_refusal", f"write: {status} {text.strip()[:200]}")
            else:
                cell.is_refused(version)
            if status == 507:
                self.report.count("series_refused")
                return False
            if status != 503:
                self.report.violation("wrong_refusal", f"write: {status} {text.strip()[:200]}")
                return False
            self.report.count("series_busy")
            if time.monotonic() > end:
                self.report.violation("busy_for_ever", f"503 for {BUSY_MAX} s: {text.strip()[:200]}")
                return False
            time.sleep(0.1)

    def change(self, http, database, statement, names):
        """Executes a statement that deletes these batches. Errors are violations, because deletes free space."""
        began = time.monotonic()
        try:
            status, wrong = http.change(database, statement)
        except Gone:
            for name in names:
                self.cells[name].unknown(ABSENT)
            raise
        self.report.at_most("series_delete_s", time.monotonic() - began)
        if status != 200 or wrong:
            if not self.may_fail():
                self.report.violation("delete_refused", f"{statement}: {wrong[:200]}")
            for name in names:
                self.cells[name].unknown(ABSENT)
            return False
        for name in names:
            self.cells[name].acknowledged(ABSENT)
        self.report.count("series_deletes")
        return True

    def live(self):
        """The bytes of the acknowledged points."""
        return len(self.cells.present()) * self.rows * self.fields * 8

    def verify(self, http, only=None):
        """Reads all rows of every batch, and all values of one in ten."""
        sources = {}
        for name in self.cells:
            if only is None or only(name):
                sources.setdefault(name[:2], []).append(name)
        for (database, source), names in sources.items():
            found = {}
            rows, wrong = http.select(database, f"SELECT \"v\" FROM m WHERE src='{source}'")
            if wrong and "not found" not in wrong and "no database" not in wrong and "404" not in wrong:
                self.report.violation("unreadable", f"{database} {source}: {wrong[:200]}")
                continue
            for row in rows:
                block, at = divmod(int(row[-2]) - START, self.rows)
                found.setdefault(block, {})[at] = int(row[-1])
            for name in names:
                self.check(http, name, found.get(name[2], {}))
            self.report.count("series_verified", len(names))

    def check(self, http, name, found):
        cell = self.cells[name]
        versions = {found.get(row, ABSENT) for row in range(self.rows)}
        if len(versions) > 1:
            # Only an unanswered write may be there in part; the next check decides its rows.
            allowed = {cell.sure, *cell.maybe}
            if not versions <= allowed:
                count = sum(found.get(row, ABSENT) not in allowed for row in range(self.rows))
                kind = "visible_though_refused" if versions & cell.refused - allowed else "torn"
                self.report.violation(
                    kind, f"{name}: {count} rows of {self.rows} hold {sorted(versions - allowed)[:5]}, not {allowed}"
                )
                cell.acknowledged(max(versions))
            else:
                self.report.count("series_in_part")
            return
        version = versions.pop()
        was = cell.sure
        wrong = cell.check(version)
        if wrong:
            self.report.violation(wrong, f"batch {name}: {version} read, {was} acknowledged")
        elif version and random.random() < 0.1:
            self.compare(http, name, version)

    def compare(self, http, name, version):
        database, source, block = name
        at = START + block * self.rows
        fields = ",".join(f'"f{n}"' for n in range(self.fields))
        when = f"time >= {at}s AND time < {at + self.rows}s"
        rows, wrong = http.select(database, f"SELECT {fields} FROM m WHERE src='{source}' AND {when}")
        if wrong:
            self.report.violation("unreadable", f"{name}: {wrong[:200]}")
        found = [list(map(int, row[-self.fields :])) for row in rows]
        if not wrong and found != integers(name, version, self.rows, self.fields):
            self.report.violation("damaged", f"batch {name} version {version} reads differently")
