"""A broker of MQTT 3.1.1 that records which messages were acknowledged, and keeps and repeats the others."""

import collections
import contextlib
import socket
import struct
import threading

CONNECT, PUBLISH, PUBACK, SUBSCRIBE, PINGREQ = 1, 3, 4, 8, 12
IN_FLIGHT = 50


class Broker:
    """One subscriber, quality of service 1. `on_acknowledged` gets each acknowledged message once."""

    def __init__(self, topic, on_acknowledged):
        self.topic, self.on_acknowledged = topic, on_acknowledged
        self.lock = threading.Condition()
        self.waiting, self.flying = collections.deque(), {}
        self.number, self.closed, self.subscribed = 0, False, False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def publish(self, message, payload):
        """Keeps the message until it is acknowledged; waits while too many are kept."""
        with self.lock:
            self.lock.wait_for(lambda: len(self.waiting) + len(self.flying) < 1000 or self.closed, timeout=1)
            if len(self.waiting) + len(self.flying) >= 1000:
                return False
            self.waiting.append((message, payload))
            self.lock.notify_all()
            return True

    def kept(self):
        with self.lock:
            return len(self.waiting) + len(self.flying)

    def serve(self):
        while not self.closed:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError, EOFError), connection:
                self.session(connection)

    def session(self, connection):
        """One connection at a time: a new one gets every message that the old one did not acknowledge."""
        reader = connection.makefile("rb")
        ended = threading.Event()
        sender = None
        try:
            while True:
                kind, body = packet(reader)
                if kind == CONNECT:
                    connection.sendall(bytes([0x20, 2, self.subscribed, 0]))
                elif kind == SUBSCRIBE:
                    self.subscribed = True
                    connection.sendall(b"\x90\x03" + body[:2] + b"\x01")
                elif kind == PUBACK:
                    (number,) = struct.unpack(">H", body[:2])
                    with self.lock:
                        found = self.flying.pop(number, None)
                        self.lock.notify_all()
                    if found:
                        self.on_acknowledged(found[0])
                elif kind == PINGREQ:
                    connection.sendall(b"\xd0\x00")
                if self.subscribed and sender is None:
                    sender = threading.Thread(target=self.send, args=(connection, ended), daemon=True)
                    sender.start()
        finally:
            ended.set()
            with self.lock:
                self.lock.notify_all()
            if sender:
                sender.join()
            with self.lock:
                self.waiting.extendleft(self.flying[number] for number in sorted(self.flying, reverse=True))
                self.flying.clear()

    def send(self, connection, ended):
        while not ended.is_set():
            with self.lock:
                self.lock.wait_for(
                    lambda: ended.is_set() or self.waiting and len(self.flying) < IN_FLIGHT, timeout=1
                )
                if ended.is_set() or not self.waiting or len(self.flying) >= IN_FLIGHT:
                    continue
                message = self.waiting.popleft()
                self.number = self.number % 65535 + 1
                self.flying[self.number] = message
                number = self.number
            topic = self.topic.encode()
            body = struct.pack(">H", len(topic)) + topic + struct.pack(">H", number) + message[1]
            with contextlib.suppress(OSError):
                connection.sendall(b"\x32" + length(len(body)) + body)

    def close(self):
        self.closed = True
        self.listener.close()


def length(number):
    out = bytearray()
    while True:
        number, low = divmod(number, 128)
        out.append(low | (0x80 if number else 0))
        if not number:
            return bytes(out)


def packet(reader):
    head = reader.read(1)
    if not head:
        raise EOFError
    size = shift = 0
    while True:
        byte = reader.read(1)
        if not byte:
            raise EOFError
        size |= (byte[0] & 0x7F) << shift
        shift += 7
        if byte[0] < 0x80:
            break
    body = reader.read(size)
    if len(body) != size:
        raise EOFError
    return head[0] >> 4, body
