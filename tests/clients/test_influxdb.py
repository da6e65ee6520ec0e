"""Time series through curl and InfluxDB's own Python packages: points read back equal those sent."""

import gzip
import json
import math
import subprocess
import urllib.parse

import pyarrow as pa
import pyarrow.ipc
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


def raw_curl(server, path, *more, body=None, scheme="http"):
    """Asks with curl: the status and the bytes of the body."""
    command = ["curl", "--silent", "--show-error", "--write-out", "\n%{http_code}", *more]
    if body is not None:
        command += ["--data-binary", "@-"]
    ran = subprocess.run(
        [*command, f"{scheme}://localhost:{server.http}{path}"], input=body, capture_output=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    answer, status = ran.stdout.rsplit(b"\n", 1)
    return int(status), answer


def curl(server, path, *more, **how):
    """Asks with curl: the status and the body."""
    status, answer = raw_curl(server, path, *more, **how)
    return status, answer.decode()


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


def arrow(server, statement, database="sensors"):
    """Asks for a stream of Arrow: its batches as one table."""
    query = urllib.parse.urlencode({"db": database, "q": statement})
    accept = ["-H", "Accept: application/vnd.apache.arrow.stream"]
    status, answer = raw_curl(server, f"/query?{query}", *accept)
    assert status == 200, answer
    return pa.ipc.open_stream(answer).read_all()


def test_arrow_streams_hold_what_was_written(server, one):
    sent = rows(25_000)
    assert one.write_points(sent, batch_size=5000)
    table = arrow(server, 'SELECT "float", "integer", "truth", "text" FROM "a, b c" GROUP BY "host"')
    assert table.schema.field("time").type == pa.timestamp("ns", "UTC")
    assert table.column_names == ["name", "host", "time", "float", "integer", "truth", "text"]
    read = table.set_column(2, "time", table["time"].cast("int64")).sort_by("time").to_pylist()
    assert read == [
        {"name": "a, b c", "host": row["tags"]["host"], "time": row["time"], **row["fields"]} for row in sent
    ]
    summed = arrow(server, f'SELECT count("float"), mean("float") FROM "a, b c" WHERE time >= {START} '
                           f"AND time < {START + 60 * 10**9} GROUP BY time(10s), host fill(none)")
    assert sum(summed["count"].to_pylist()) == 60
    assert arrow(server, "SELECT v FROM nothing").num_rows == 0
    assert arrow(server, "SHOW TAG KEYS")["tagKey"].to_pylist() == ["host", "k,="]
    accept = ["-H", "Accept: application/vnd.apache.arrow.stream"]
    status, told = curl(server, "/query?db=sensors&q=SELECT+x(integer)+FROM+/a/", *accept)
    assert status == 400 and "undefined function" in told


def test_the_door_counts(server, one):
    before = server.metrics()
    assert curl(server, "/write?db=sensors", body=b"m v=1,w=2 1\nm v=\n")[0] == 400
    assert curl(server, "/query?db=sensors&q=SELECT+v+FROM+m")[0] == 200
    after = server.metrics()
    grown = {name: after[name] - before[name] for name in before if name.startswith(("http_", "series_"))}
    assert grown['http_requests_total{wanted="write",outcome="refused"}'] == 1
    assert grown['http_requests_total{wanted="query",outcome="done"}'] == 1
    assert grown["http_rows_total"] == 1 and grown["http_points_total"] == 2
    assert grown["http_dropped_rows_total"] == 1
    assert grown["http_received_bytes_total"] == 17 and grown["http_sent_bytes_total"] > 50
    assert grown['http_request_seconds_count{wanted="write"}'] == 1
    assert grown["series_points_total"] == 2 and after["series_known"] >= 2


# What Grafana's data source for InfluxQL sends: on "Save & test", for its query editor and variables, for a panel.
GRAFANA = [
    "SHOW DATABASES",
    "SHOW MEASUREMENTS LIMIT 100",
    'SHOW MEASUREMENTS WITH MEASUREMENT =~ /(?i)cp/ LIMIT 100',
    'SHOW TAG KEYS FROM "cpu"',
    'SHOW TAG KEYS FROM "autogen"."cpu"',
    'SHOW FIELD KEYS FROM "cpu"',
    'SHOW RETENTION POLICIES on "sensors"',
    'SHOW TAG VALUES FROM "cpu" WITH KEY = "host"',
    'SHOW TAG VALUES FROM "cpu" WITH KEY = "host" WHERE "region" = \'eu\'',
    'SHOW TAG VALUES WITH KEY = "host"',
    "SELECT mean(\"usage\") FROM \"cpu\" WHERE time >= 1700000000000ms and time <= 1700000600000ms "
    "GROUP BY time(1m), \"host\"::tag fill(null) ORDER BY time ASC",
    "SELECT mean(\"usage\") * 2 AS \"twice\" FROM \"autogen\".\"cpu\" WHERE (\"host\"::tag =~ /^(a|b)$/ AND "
    "\"region\" = 'eu') AND time >= 1700000000000ms and time <= 1700000600000ms GROUP BY time(2m) fill(none)",
    'SELECT "usage" FROM "cpu" WHERE time >= 1700000000000ms and time <= 1700000600000ms LIMIT 1000',
    'SELECT last("usage") FROM "cpu" WHERE $timeFilter'.replace("$timeFilter", "time >= now() - 6h and time <= now()"),
]


def test_grafanas_requests_are_answered(server, one):
    lines = "".join(
        f"cpu,host={host},region=eu usage={n + shift} {1700000000 + n * 10}\n"
        for n in range(60) for host, shift in (("a", 0), ("b", 100))
    )
    assert curl(server, "/write?db=sensors&precision=s", body=lines.encode())[0] == 204
    answers = {}
    for method in ("GET", "POST"):
        for statement in GRAFANA:
            form = ["--data-urlencode", f"q={statement}"]
            # Grafana names the database in the address, and sends the query by either method.
            how = ["--get", *form] if method == "GET" else form
            path = "/query?db=sensors&epoch=ms"
            status, text = curl(server, path, *how, "-H", "User-Agent: Grafana/11.3")
            assert status == 200 and '"error"' not in text, (statement, text)
            result = json.loads(text)["results"][0]
            series = result.get("series", [])
            assert answers.setdefault(statement, series) == series
    values = [[value for row in answers[statement][0]["values"] for value in row] for statement in GRAFANA[:10]]
    assert "sensors" in values[0]
    assert values[1] == values[2] == ["cpu"]
    assert values[3] == values[4] == ["host", "region"]
    assert values[5] == ["usage", "float"]
    assert values[6][0] == "autogen"
    assert values[7] == values[8] == values[9] == ["host", "a", "host", "b"]
    panel = answers[GRAFANA[10]]
    assert [series["tags"] for series in panel] == [{"host": "a"}, {"host": "b"}]
    # Eleven windows of a minute, aligned to minutes, the first and last cut: 1700000000 is 20 s into one.
    assert len(panel[0]["values"]) == 11 and panel[0]["values"][0] == [1699999980000, 1.5]
    assert [series["columns"] for series in answers[GRAFANA[11]]] == [["time", "twice"]]
    assert len(answers[GRAFANA[12]][0]["values"]) == 120
    assert answers[GRAFANA[13]] == []


def test_telegrafs_writes_are_taken(server, one):
    """Its outputs `influxdb` and `influxdb_v2`, header by header."""
    assert curl(server, "/query", "-H", "User-Agent: Telegraf/1.32", "--data-urlencode",
                'q=CREATE DATABASE "telegraf"')[0] == 200
    line = b'cpu,cpu=cpu-total,host=ship usage_idle=97.5,usage_user=1.25 1700000000000000000\n'
    line += b'mem,host=ship free=123i,used_percent=42.5,text="a b" 1700000000000000000\n'
    zipped = gzip.compress(line)
    kind = ["-H", "Content-Type: text/plain; charset=utf-8", "-H", "Content-Encoding: gzip", "-H", "User-Agent: Telegraf/1.32"]
    for path in ("/write?consistency=any&db=telegraf&precision=ns&rp=", "/api/v2/write?bucket=telegraf&org=ship"):
        assert curl(server, path, *kind, "-H", "Authorization: Token any", body=zipped) == (204, "")
    read = list(one.query("SELECT * FROM mem", database="telegraf", epoch="ns").get_points())
    assert read == [
        {"time": 1700000000000000000, "free": 123, "host": "ship", "text": "a b", "used_percent": 42.5}
    ]
    one.drop_database("telegraf")


def test_monitoring_sees_the_log_store_below(server, one):
    one.write("cpu,host=a usage=0.5\n" * 100, {"db": "sensors"}, protocol="line")

    def admin(path):
        socket = str(server.directory / "admin.socket")
        command = ["curl", "--silent", "--fail", "--unix-socket", socket, f"http://localhost{path}"]
        return subprocess.run(command, capture_output=True, check=True, timeout=60, text=True).stdout

    told = dict(line.rsplit(" ", 1) for line in admin("/metrics").splitlines() if line.startswith("plimsoll_log_"))
    for name in ["fill", "hunger", "release_threshold", "dead_fraction_eaten", "write_amplification",
                 "files_died_whole_total", "put_delay_seconds"]:
        assert f'plimsoll_log_{name}{{volume="c"}}' in told
    [volume] = json.loads(admin("/figures"))["log"]["volumes"]
    assert volume["name"] == "c"
    # Also when other programs fill the disk.
    assert 0 < volume["fill"] <= 1 and volume["hunger"] == pytest.approx((volume["fill"] - 0.8) / 0.2)
    assert volume["live_bytes"] <= volume["put_bytes"] + volume["copied_bytes"]
