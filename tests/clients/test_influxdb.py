"""Time series through curl and InfluxDB's own Python packages: what is read back equals what was sent."""

import gzip
import json
import math
import subprocess
import urllib.parse

import pytest
from influxdb import InfluxDBClient
from influxdb.exceptions import InfluxDBClientError
from influxdb_client import InfluxDBClient as InfluxDBClient2
from influxdb_client import Point, WritePrecision
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.rest import ApiException

START = 1_700_000_000_000_000_000


@pytest.fixture
def one(server):
    """A client of version 1, with an empty database."""
    client = InfluxDBClient("127.0.0.1", server.http, database="sensors")
    client.drop_database("sensors")
    client.create_database("sensors")
    yield client
    client.close()


@pytest.fixture
def two(server):
    """A client of version 2."""
    with InfluxDBClient2(url=f"http://127.0.0.1:{server.http}", token="any", org="any", enable_gzip=True) as client:
        yield client


def curl(server, path, *more, body=None):
    """Asks with curl: the status and the body."""
    command = ["curl", "--silent", "--show-error", "--write-out", "\n%{http_code}", *more]
    if body is not None:
        command += ["--data-binary", "@-"]
    ran = subprocess.run(
        [*command, f"http://127.0.0.1:{server.http}{path}"], input=body, capture_output=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    text, status = ran.stdout.decode().rsplit("\n", 1)
    return int(status), text


def rows(n):
    """Rows with a value of every kind, and text that needs every escape."""
    return [
        {
            "measurement": "a, b c",
            "tags": {"host": f"h {i % 10}", "k,=": "ü,= x"},
            "time": START + i * 1_000_000_007,
            "fields": {
                "float": math.sin(i) * 10 ** (i % 30),
                "integer": -(2**63) + i,
                "truth": i % 3 == 0,
                "text": f'"{i}" \\ , = ü',
            },
        }
        for i in range(n)
    ]


def test_version_1_reads_what_it_wrote(one):
    assert one.ping().startswith("1.8")
    sent = rows(1000)
    assert one.write_points(sent, batch_size=300)
    read = one.query('SELECT * FROM "a, b c"', epoch="ns").get_points()
    expected = [{"time": row["time"], **row["tags"], **row["fields"]} for row in sent]
    assert sorted(read, key=lambda row: row["time"]) == expected
    chunks = one.query('SELECT "float" FROM "a, b c"', epoch="ns", chunked=True, chunk_size=64)
    read = [row["float"] for chunk in chunks for row in chunk.get_points()]
    assert read == [row["fields"]["float"] for row in sent]


def test_version_1_sums_up_and_lists(one):
    one.write_points(rows(100))
    found = one.query('SELECT count("float"), max("integer") FROM "a, b c" GROUP BY "host"')
    assert len(found.keys()) == 10
    assert [next(points)["count"] for _, points in found.items()] == [10] * 10
    every = one.query(
        f'SELECT count("float") FROM "a, b c" WHERE time >= {START} AND time < {START + 100_000_000_000} '
        "GROUP BY time(10s)"
    )
    assert sum(row["count"] for row in every.get_points()) == 100
    assert {"name": "sensors"} in one.get_list_database()
    assert one.get_list_measurements() == [{"name": "a, b c"}]
    assert len(one.get_list_series("sensors")) == 10
    assert [row["name"] for row in one.get_list_retention_policies("sensors")] == ["autogen"]
    one.delete_series("sensors", "a, b c", {"host": "h 3"})
    assert next(one.query('SELECT count("float") FROM "a, b c"').get_points())["count"] == 90


def test_version_1_is_told_what_is_wrong(one):
    one.write_points([{"measurement": "m", "fields": {"v": 1.0}}])
    with pytest.raises(InfluxDBClientError, match="field type conflict.*dropped=1"):
        one.write_points([{"measurement": "m", "fields": {"v": "text"}}])
    with pytest.raises(InfluxDBClientError, match="error parsing query"):
        one.query("SELEC v FROM m")
    with pytest.raises(InfluxDBClientError, match="not found"):
        one.query("SELECT v FROM m", database="nobody")


def test_version_2_writes_what_version_1_reads(one, two):
    assert two.ping()
    assert two.health().status == "pass"
    with two.write_api(write_options=SYNCHRONOUS) as api:
        points = [
            Point("m").tag("t", "a b").field("v", i / 7).field("n", i).time(START // 10**6 + i, WritePrecision.MS)
            for i in range(500)
        ]
        api.write(bucket="sensors", record=points, write_precision=WritePrecision.MS)
        with pytest.raises(ApiException) as refused:
            api.write(bucket="sensors", record='m v=1 1\nm v="text" 2\n')
        assert refused.value.status == 422
        with pytest.raises(ApiException) as wrong:
            api.write(bucket="sensors", record="m v=\n")
        assert (wrong.value.status, json.loads(wrong.value.body)["line"]) == (400, 1)
    read = list(one.query(f"SELECT v, n FROM m WHERE time >= {START}", epoch="ms").get_points())
    assert [(row["time"], row["v"], row["n"]) for row in read] == [
        (START // 10**6 + i, i / 7, i) for i in range(500)
    ]


def test_curl_writes_and_reads(server, one):
    line = b'm,t=a v=0.1,s="two\nlines" 1700000000\n'
    path = "/write?db=sensors&precision=s"
    assert curl(server, path, "-H", "Content-Encoding: gzip", body=gzip.compress(line)) == (204, "")
    query = urllib.parse.urlencode({"db": "sensors", "q": "SELECT * FROM m", "epoch": "s"})
    status, text = curl(server, f"/query?{query}")
    assert status == 200
    assert json.loads(text)["results"][0]["series"] == [
        {"name": "m", "columns": ["time", "s", "t", "v"], "values": [[1700000000, "two\nlines", "a", 0.1]]}
    ]
    status, text = curl(server, "/api/points?db=sensors&measurement=m&field=v&format=csv")
    assert (status, text) == (200, "name,tags,time,v\nm,,1700000000000000000,0.1\n")
    bomb = gzip.compress(bytes(64 << 20))
    assert curl(server, path, "-H", "Content-Encoding: gzip", body=bomb)[0] == 413
    session = ["-H", "X-Plimsoll-Session: s", "-H", "X-Plimsoll-Sequence: 1", "--include"]
    assert "repeated" not in curl(server, path, *session, body=b"m v=2 1700000001")[1]
    assert "x-plimsoll-repeated: true" in curl(server, path, *session, body=b"m v=2 1700000001")[1]
