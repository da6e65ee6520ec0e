"""A server of time series on a pool with two copies, and its clients."""

import base64
import json
import random
import urllib.error
import urllib.parse
import urllib.request

from keys import ANSWER, Keys

# Each batch has this many points, a second apart, of one string each.
POINTS = 8
DATABASE = "d"


def text(batch, point):
    """A string that does not compress to less than three quarters."""
    return base64.b64encode(random.Random(batch * POINTS + point).randbytes(6144)).decode()


class Points(Keys):
    """`plimsoll serve` with `[series]` only."""

    SETTINGS = """
[series]
pool = "main"
memory = "32MiB"

[http]
listen = "127.0.0.1:{listener}"

[admin]
listen = "127.0.0.1:{admin}"
"""

    def answers(self):
        return self.ask("GET", "/ping")[0] < 300

    def ask(self, method, path, body=None, **parameters):
        """The status and the text of an answer."""
        where = f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(parameters)}"
        data = (body or "").encode() if method == "POST" else None
        request = urllib.request.Request(where, data=data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as answer:
            return answer.code, answer.read().decode()

    def write(self, batch):
        """Writes a batch; gives the error, if any."""
        lines = (f'm s="{text(batch, n)}" {batch * POINTS + n}' for n in range(POINTS))
        status, said = self.ask("POST", "/write", "\n".join(lines), db=DATABASE, precision="s")
        return None if status == 204 else f"{status} {said}"

    def change(self, statement):
        """Executes a statement that changes data; gives the error, if any."""
        status, said = self.ask("POST", "/query", db=DATABASE, q=statement)
        return None if status == 200 and '"error"' not in said else f"{status} {said}"

    def forget(self, batches):
        """Deletes the first batches; gives the error, if any."""
        return self.change(f"DELETE FROM m WHERE time < {batches * POINTS}s")

    def is_there(self, batch):
        begin = batch * POINTS
        where = f"time >= {begin}s AND time < {begin + POINTS}s"
        status, said = self.ask("GET", "/query", db=DATABASE, epoch="s", q=f"SELECT s FROM m WHERE {where}")
        series = json.loads(said)["results"][0].get("series", []) if status == 200 else []
        wanted = [[begin + n, text(batch, n)] for n in range(POINTS)]
        return [found["values"] for found in series] == [wanted]
