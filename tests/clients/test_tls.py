"""Clients over TLS, with certificates that openssl made."""

import socket
import ssl
import subprocess

import pytest
import redis
from conftest import Server


def openssl(directory, *args):
    ran = subprocess.run(["openssl", *args], cwd=directory, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def certify(directory, name, *more):
    """A key and a certificate `name` of the authority; the authority's own if there is none yet."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key"]
    openssl(directory, "req", "-x509", *key, "-subj", f"/CN={name}", "-out", f"{name}.crt", "-days", "2", *more)


BY_CA = ["-CA", "ca.crt", "-CAkey", "ca.key", "-addext", "basicConstraints=critical,CA:FALSE"]
SERVER = [*BY_CA, "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tls")
    certify(directory, "ca")
    certify(directory, "server", *SERVER)
    certify(directory, "client", *BY_CA)
    return directory


@pytest.fixture(scope="module")
def server(directory):
    """A server that requires certificates of clients, and a password."""
    tls = 'tls = { cert = "server.crt", key = "server.key", client_ca = "ca.crt" }\npassword = "line"\n'
    server = Server(directory, kv=tls)
    yield server
    server.stop()


def test_redis_cli(server, directory):
    ours = ["--cert", "client.crt", "--key", "client.key"]
    tls = ["--tls", "--cacert", "ca.crt", "--no-auth-warning", "-a", "line"]
    assert server.run("redis-cli", *tls, *ours, "set", "k", "v", cwd=directory) == "OK\n"
    assert server.run("redis-cli", *tls, *ours, "get", "k", cwd=directory) == "v\n"
    without = subprocess.run(
        ["redis-cli", "-p", str(server.port), *tls, "ping"], cwd=directory, capture_output=True, text=True
    )
    assert "PONG" not in without.stdout


def test_redis_py(server, directory):
    how = dict(ssl=True, ssl_ca_certs=str(directory / "ca.crt"), password="line", decode_responses=True)
    ours = dict(ssl_certfile=str(directory / "client.crt"), ssl_keyfile=str(directory / "client.key"))
    client = server.connect(**how, **ours)
    pipeline = client.pipeline(transaction=False)
    for n in range(1000):
        pipeline.set("n", "x" * n)
        pipeline.get("n")
    assert pipeline.execute() == [answer for n in range(1000) for answer in (True, "x" * n)]
    with pytest.raises(redis.ConnectionError):
        server.connect(**how).ping()
    with pytest.raises(redis.ResponseError, match="this port speaks TLS only"):
        server.connect(password="line").ping()


def test_redis_benchmark(server, directory):
    ours = ["--tls", "--cacert", "ca.crt", "--cert", "client.crt", "--key", "client.key", "-a", "line"]
    told = server.run(
        "redis-benchmark", *ours, "-t", "set,get", "-P", "16", "-n", "20000", "-q", cwd=directory
    )
    assert "rror" not in told and "GET" in told, told


def test_renewed_certificates_are_taken_up(server, directory):
    def shown():
        """The serial number of the certificate that a new connection gets."""
        context = ssl.create_default_context(cafile=directory / "ca.crt")
        context.load_cert_chain(directory / "client.crt", directory / "client.key")
        with socket.create_connection(("127.0.0.1", server.port)) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as stream:
                return stream.getpeercert()["serialNumber"], stream.version()

    before = shown()
    assert shown() == before and before[1] == "TLSv1.3"
    certify(directory, "server", *SERVER)
    assert shown() == before
    status, told = server.reload()
    assert (status, told) == (200, "kv.tls: new connections get the certificates read now\n")
    after = shown()
    assert after != before
    (directory / "server.key").write_text((directory / "client.key").read_text())
    status, told = server.reload()
    assert status == 422 and "server.key: it is not the key of the first certificate in " in told
    assert shown() == after
