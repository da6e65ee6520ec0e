"""redis-benchmark, pipelined and not."""

import csv
import io

import pytest


@pytest.mark.parametrize("pipeline, requests", [(16, 100_000), (1, 20_000)])
def test_it_ends_without_an_error(server, pipeline, requests):
    told = server.run(
        "redis-benchmark",
        *["-t", "set,get,mset,hset,zadd", "-P", str(pipeline), "-c", "50", "-n", str(requests), "-r", "100000", "--csv"],
    )
    assert "rror" not in told, told
    rows = {row["test"]: float(row["rps"]) for row in csv.DictReader(io.StringIO(told))}
    assert rows.keys() == {"SET", "GET", "HSET", "ZADD", "MSET (10 keys)"}
    assert all(rate > 0 for rate in rows.values())
