"""Points from a broker: mosquitto, and mosquitto_pub; points read back equal those sent."""

import os
import shutil
import socket
import subprocess
import time

import pytest
from conftest import Server
from influxdb import InfluxDBClient
from test_tls import SERVER, certify

START = 1_700_000_000


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until(what, is_so):
    """Waits until `is_so` is true, for up to a minute."""
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.02)


class Broker:
    """A mosquitto that keeps messages that subscribers have not acknowledged, also across its restarts."""

    def __init__(self, directory, more=""):
        self.directory, self.port = directory, free_port()
        user = "user root\n" if os.geteuid() == 0 else ""
        (directory / "mosquitto.conf").write_text(
            f"listener {self.port} 127.0.0.1\n{user}persistence true\npersistence_location {directory}/\n"
            f"max_queued_messages 0\n{more or 'allow_anonymous true'}\n"
        )
        self.start()

    def start(self):
        program = shutil.which("mosquitto", path=os.environ["PATH"] + ":/usr/sbin")
        with open(self.directory / "mosquitto.log", "a") as log:
            self.process = subprocess.Popen(
                [program, "-c", str(self.directory / "mosquitto.conf")], stdout=log, stderr=log
            )

        def listens():
            with socket.socket() as client:
                return client.connect_ex(("127.0.0.1", self.port)) == 0

        until("mosquitto listens", listens)

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=60)

    def publish(self, topic, messages, *more, qos=1):
        """Publishes each line as a message, as QoS 1 has it: when it returns, the broker has them."""
        ran = subprocess.run(
            ["mosquitto_pub", "-p", str(self.port), "-q", str(qos), "-t", topic, "-l", *more],
            input="\n".join(messages) + "\n", capture_output=True, text=True, timeout=120,
        )
        assert ran.returncode == 0, ran.stderr


def settings(broker, more=""):
    return f"""
[mqtt]
broker = "localhost:{broker.port}"
topics = ["ship/#"]
database = "sensors"
precision = "s"
keep_alive = "2s"
{more}
"""


def reader(server):
    return InfluxDBClient("127.0.0.1", server.http, database="sensors")


def read(server, statement):
    return list(reader(server).query(statement, epoch="s").get_points())


def count(server):
    found = read(server, "SELECT count(v) FROM m")
    return found[0]["count"] if found else 0


def subscribed(server):
    until("the broker is subscribed to", lambda: server.metrics()["mqtt_connected"] == 1)


@pytest.fixture
def broker(tmp_path):
    (tmp_path / "broker").mkdir()
    broker = Broker(tmp_path / "broker")
    yield broker
    broker.stop()


def test_lines_are_stored_and_what_was_sent_is_read(tmp_path, broker):
    server = Server(tmp_path, more=settings(broker))
    subscribed(server)
    lines = [f"m,t=a\\ b v={n / 8},i={n}i,s=\"ü {n}\" {START + n}" for n in range(2000)]
    broker.publish("ship/bow", lines)
    broker.publish("ship/bow", ["m v=", f"m v=7 {START - 1}"])
    broker.publish("quay", [f"m v=8 {START - 2}"])
    broker.publish("ship/stern", [f"m v=9 {START - 3}"], qos=0)
    until("all of it is stored", lambda: count(server) == 2002)
    expected = [{"time": START + n, "v": n / 8, "i": n, "s": f"ü {n}", "t": "a b"} for n in range(2000)]
    assert read(server, f"SELECT * FROM m WHERE time >= {START}s") == expected
    metrics = server.metrics()
    assert metrics["mqtt_messages_total"] == 2003 and metrics["mqtt_dropped_rows_total"] == 1
    assert metrics["mqtt_rows_total"] == 2002
    server.stop()


def test_json_is_stored(tmp_path, broker):
    server = Server(tmp_path, more=settings(broker, 'payload = "json"\nmeasurement = "m"\ntags = ["id"]\n'))
    subscribed(server)
    broker.publish(
        "ship/hold",
        [
            f'{{"time": {START}, "id": "pump 1", "v": 20, "on": true, "in": {{"x": [1.5]}}}}',
            f'[{{"time": {START + 1}, "v": 1e3}}, {{"time": "2023-11-14T22:13:22Z", "v": -0.5, "note": "ü"}}]',
            "no JSON",
        ],
    )
    until("all of it is stored", lambda: count(server) == 3)
    nothing = {"id": None, "in_x_0": None, "note": None, "on": None, "topic": "ship/hold"}
    assert read(server, "SELECT * FROM m") == [
        {**nothing, "time": START, "id": "pump 1", "v": 20.0, "on": True, "in_x_0": 1.5},
        {**nothing, "time": START + 1, "v": 1000.0},
        {**nothing, "time": START + 2, "v": -0.5, "note": "ü"},
    ]
    server.stop()


def test_nothing_is_lost_while_either_of_them_is_away(tmp_path, broker):
    """The broker keeps messages published while the server is killed or stopped, and may itself restart."""
    more = settings(broker)
    server = Server(tmp_path, more=more)
    subscribed(server)
    sent = 0
    for away in range(6):
        publishing = [f"m v={n} {START + n}" for n in range(sent, sent + 500)]
        sent += 500
        if away % 3 == 0:
            # In the middle of publishing.
            with subprocess.Popen(
                ["mosquitto_pub", "-p", str(broker.port), "-q", "1", "-t", "ship/a", "-l"],
                stdin=subprocess.PIPE, text=True,
            ) as publisher:
                publisher.stdin.write("\n".join(publishing[:250]) + "\n")
                publisher.stdin.flush()
                server.process.kill()
                server.process.wait()
                publisher.stdin.write("\n".join(publishing[250:]) + "\n")
                publisher.stdin.close()
                assert publisher.wait(timeout=60) == 0
            server = Server(tmp_path, more=more)
        elif away % 3 == 1:
            server.stop()
            broker.publish("ship/a", publishing)
            server = Server(tmp_path, more=more)
        else:
            broker.stop()
            broker.start()
            broker.publish("ship/a", publishing)
        until("all of it is stored", lambda: count(server) >= sent)
    found = read(server, "SELECT v FROM m")
    assert found == [{"time": START + n, "v": n} for n in range(sent)]
    server.stop()


def test_tls_and_a_password(tmp_path):
    directory = tmp_path / "broker"
    directory.mkdir()
    certify(tmp_path, "ca")
    certify(tmp_path, "server", *SERVER)
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(directory / "users"), "ship", "hush"], check=True)
    (directory / "users").chmod(0o600)
    broker = Broker(
        directory,
        f"password_file {directory}/users\ncafile {tmp_path}/ca.crt\ncertfile {tmp_path}/server.crt\n"
        f"keyfile {tmp_path}/server.key",
    )
    tls = 'tls = { ca = "ca.crt" }\nuser = "ship"\n'
    try:
        wrong = Server(tmp_path, more=settings(broker, tls + 'password = "hash"\n'))
        log = tmp_path / "log"
        until("the broker refuses", lambda: "refused" in log.read_text())
        assert "hash" not in log.read_text()
        wrong.stop()
        server = Server(tmp_path, more=settings(broker, tls + 'password = "hush"\n'))
        subscribed(server)
        login = ["--cafile", str(tmp_path / "ca.crt"), "-h", "localhost", "-u", "ship", "-P", "hush"]
        broker.publish("ship/a", [f"m v=1 {START}"], *login)
        until("it is stored", lambda: count(server) == 1)
        server.stop()
    finally:
        broker.stop()
