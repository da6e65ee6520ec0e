"""Clients of the server's listeners, with the standard library only: an answer, or `Gone`."""

import http.client
import json
import socket
import urllib.parse


class Gone(Exception):
    """The connection ended before the answer: the request may have taken effect, or not."""


class Refused(str):
    """An error reply."""


class Redis:
    """One connection that speaks RESP2."""

    def __init__(self, port, timeout=60):
        try:
            self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        except OSError as error:
            raise Gone(str(error)) from error
        self.reader = self.socket.makefile("rb")

    def send(self, commands):
        parts = []
        for command in commands:
            parts.append(b"*%d\r\n" % len(command))
            for word in command:
                word = word if isinstance(word, bytes) else str(word).encode()
                parts += [b"$%d\r\n" % len(word), word, b"\r\n"]
        try:
            self.socket.sendall(b"".join(parts))
        except OSError as error:
            raise Gone(str(error)) from error

    def reply(self):
        try:
            line = self.reader.readline()
            if not line.endswith(b"\r\n"):
                raise Gone("end of stream")
            kind, rest = line[:1], line[1:-2]
            if kind == b"+":
                return rest.decode()
            if kind == b"-":
                return Refused(rest.decode())
            if kind == b":":
                return int(rest)
            if kind == b"$":
                if rest == b"-1":
                    return None
                body = self.reader.read(int(rest) + 2)
                if len(body) != int(rest) + 2:
                    raise Gone("end of stream")
                return body[:-2]
            if kind == b"*":
                return None if rest == b"-1" else [self.reply() for _ in range(int(rest))]
        except OSError as error:
            raise Gone(str(error)) from error
        raise Gone(f"no reply: {line[:80]!r}")

    def pipeline(self, commands):
        """Replies in order; may raise `Gone` after some of them, see `each`."""
        return list(self.each(commands))

    def each(self, commands):
        self.send(commands)
        for _ in commands:
            yield self.reply()

    def __call__(self, *command):
        self.send([command])
        return self.reply()

    def close(self):
        self.socket.close()


class Http:
    """One connection to the listener of time series."""

    def __init__(self, port, timeout=60):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)

    def ask(self, method, path, parameters, body=None, headers=None):
        """The status and the text of the answer."""
        try:
            where = f"{path}?{urllib.parse.urlencode(parameters)}"
            self.connection.request(method, where, body=body, headers=headers or {})
            answer = self.connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            raise Gone(str(error)) from error

    def write(self, database, lines):
        return self.ask("POST", "/write", {"db": database, "precision": "s"}, "\n".join(lines))

    def change(self, database, statement):
        """Executes a statement that changes data: the status, and the error (empty if there is none)."""
        status, text = self.ask("POST", "/query", {"db": database, "q": statement})
        return status, wrong_with(status, text)

    def select(self, database, statement):
        """The rows of the answer as lists of CSV words, and the error."""
        how = {"db": database, "q": statement, "epoch": "s"}
        status, text = self.ask("GET", "/query", how, headers={"Accept": "application/csv"})
        wrong = wrong_with(status, text)
        rows = [] if wrong else [line.split(",") for line in text.splitlines()[1:] if line]
        return rows, wrong

    def close(self):
        self.connection.close()


def wrong_with(status, text):
    if status != 200:
        return f"{status} {text.strip()}"
    if text.startswith("{") and '"error"' in text:
        found = json.loads(text)
        errors = [found.get("error")] + [part.get("error") for part in found.get("results", [])]
        return "; ".join(error for error in errors if error)
    if text.startswith("error"):
        return text.strip()
    return ""


def admin(path, what, method="GET", timeout=2):
    """The status and text of an answer of the admin listener on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        try:
            connection.connect(str(path))
            request = f"{method} {what} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            connection.sendall(request.encode())
            answer = connection.makefile("rb").read().decode()
            head, body = answer.split("\r\n\r\n", 1)
            return int(head.split()[1]), body
        except (OSError, ValueError) as error:
            raise Gone(str(error)) from error
