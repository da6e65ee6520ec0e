"""Time series over HTTPS, with tokens: curl and InfluxDB's own packages."""

import subprocess

import pytest
from conftest import Server
from influxdb import InfluxDBClient
from influxdb.exceptions import InfluxDBClientError
from influxdb_client import InfluxDBClient as InfluxDBClient2
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.rest import ApiException
from test_influxdb import curl
from test_tls import SERVER, certify


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("https")
    certify(directory, "ca")
    certify(directory, "server", *SERVER)
    return directory


@pytest.fixture(scope="module")
def server(directory):
    """A server whose listener of time series has TLS and two tokens."""
    server = Server(directory, http='tls = { cert = "server.crt", key = "server.key" }\ntokens = ["bow", "stern"]\n')
    yield server
    server.stop()


def test_curl(server, directory):
    trusted = ["--cacert", str(directory / "ca.crt")]

    def ask(path, *more, **how):
        return curl(server, path, *trusted, *more, scheme="https", **how)

    assert ask("/ping")[0] == 204
    line = b"m v=1 1"
    assert ask("/write?db=d", body=line)[0] == 401
    assert ask("/write?db=d", "-H", "Authorization: Token aft", body=line)[0] == 401
    assert ask("/write?db=d", "-H", "Authorization: Token bow", body=line) == (204, "")
    assert ask("/query?db=d&q=SELECT+v+FROM+m&epoch=ns")[0] == 401
    status, text = ask("/query?db=d&q=SELECT+v+FROM+m&epoch=ns", "-u", "anybody:stern")
    assert status == 200 and "[[1,1.0]]" in text
    # A client without the authority rejects the certificate, and plain HTTP gets no answer.
    address = f"localhost:{server.http}/ping"
    stranger = subprocess.run(["curl", "--silent", f"https://{address}"], capture_output=True, timeout=60)
    assert stranger.returncode == 60
    clear = subprocess.run(["curl", "--silent", f"http://{address}"], capture_output=True, timeout=60)
    assert clear.returncode != 0 and clear.stdout == b""


def test_version_1(server, directory):
    how = dict(host="localhost", port=server.http, ssl=True, verify_ssl=str(directory / "ca.crt"), username="any")
    client = InfluxDBClient(**how, password="bow", database="one")
    client.create_database("one")
    assert client.write_points([{"measurement": "m", "fields": {"v": 0.5}, "time": 7}], time_precision="n")
    assert list(client.query("SELECT v FROM m", epoch="ns").get_points()) == [{"time": 7, "v": 0.5}]
    with pytest.raises(InfluxDBClientError, match="unauthorized"):
        InfluxDBClient(**how, password="aft", database="one").write_points(
            [{"measurement": "m", "fields": {"v": 0.5}}]
        )


def test_version_2(server, directory):
    how = dict(url=f"https://localhost:{server.http}", org="any", ssl_ca_cert=str(directory / "ca.crt"))
    with InfluxDBClient2(**how, token="stern") as client, client.write_api(write_options=SYNCHRONOUS) as api:
        api.write(bucket="two", record="m v=0.25 7")
    with InfluxDBClient2(**how, token="aft") as client, client.write_api(write_options=SYNCHRONOUS) as api:
        with pytest.raises(ApiException) as refused:
            api.write(bucket="two", record="m v=0.5 7")
    assert refused.value.status == 401
