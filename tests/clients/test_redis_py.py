"""Every command, through redis-py."""

import pytest
import redis

from conftest import Server


def test_strings_are_stored_and_read(client):
    assert client.set("ship", "plimsoll") is True
    assert client.get("ship") == "plimsoll"
    assert client.get("missing") is None
    assert client.set("ship", "") is True
    assert client.get("ship") == ""


def test_keys_and_values_are_any_bytes(server):
    client = server.connect()
    every_byte = bytes(range(256))
    client.set(every_byte, every_byte * 100)
    assert client.get(every_byte) == every_byte * 100
    assert client.delete(every_byte) == 1


def test_keys_are_deleted_and_counted(client):
    client.set("ship", 1)
    client.set("line", 2)
    assert client.exists("ship", "ship", "line", "missing") == 3
    assert client.delete("ship", "missing") == 1
    assert client.unlink("line", "line") == 1
    assert client.exists("ship", "line") == 0


def test_dbsize_counts(client):
    client.flushdb()
    client.set("ship", 1)
    client.hset("line", "field", 1)
    assert client.dbsize() == 2


def test_a_pipeline_answers_in_order(client):
    pipeline = client.pipeline(transaction=False)
    for n in range(1000):
        pipeline.set("ship", n)
        pipeline.get("ship")
    assert pipeline.execute() == [answer for n in range(1000) for answer in (True, str(n))]


def test_an_error_in_a_pipeline_is_only_its_own(client):
    pipeline = client.pipeline(transaction=False)
    pipeline.set("ship", 1)
    pipeline.execute_command("NOPE", "a")
    pipeline.get("ship")
    done = pipeline.execute(raise_on_error=False)
    assert [done[0], done[2]] == [True, "1"]
    assert "unknown command 'NOPE', with args beginning with: 'a'" in str(done[1])


def test_the_connection_answers(client):
    assert client.ping() is True
    assert client.echo("line") == "line"
    assert client.select(0) is True
    assert client.client_id() > 0
    assert client.client_setname("sailor") is True
    assert client.client_getname() == "sailor"
    assert client.execute_command("CLIENT", "SETINFO", "LIB-NAME", "test") in ("OK", True)
    assert client.quit() is True


def test_hello_names_version_and_protocol(server):
    client = server.connect(protocol=3, decode_responses=True)
    told = client.execute_command("HELLO", 3)
    assert (told["proto"], told["mode"], told["role"]) == (3, "standalone", "master")


def test_errors_are_those_of_redis(client):
    for command, text in [
        (["GET"], "wrong number of arguments for 'get' command"),
        (["SELECT", "1"], "DB index is out of range"),
        (["SET", "ship", "1", "XX", "NX"], "syntax error"),
        (["CONFIG", "NOPE"], "unknown subcommand 'NOPE'. Try CONFIG HELP."),
    ]:
        with pytest.raises(redis.ResponseError, match=text):
            client.execute_command(*command)


def test_the_catalogue_of_commands_is_told(client):
    assert client.command_count() == len(client.command_list())
    assert "get" in client.command_list()
    assert client.command()["get"]["arity"] == 2


def test_settings_can_be_asked_for(client):
    assert client.config_get("appendfsync") == {"appendfsync": "everysec"}
    assert client.config_get("databases", "proto-max-*") == {
        "databases": "1",
        "proto-max-bulk-len": "1048576",
    }


def test_info_has_real_figures(client):
    client.set("ship", 1)
    client.get("ship")
    info = client.info()
    assert info["redis_mode"] == "standalone"
    assert info["durability"] == "everysec"
    assert info["connected_clients"] >= 1
    assert info["used_memory_rss"] > 1_000_000
    assert info["keyspace_hits"] >= 1
    assert info["db0"]["keys"] >= 1
    assert info["volume_a"]["paid_iops"] == 3000
    assert info["volume_b"]["paid_iops"] == "unlimited"
    assert client.info("stats")["total_commands_processed"] > 0


def test_a_value_that_is_too_long_is_refused(server):
    client = server.connect()
    most = bytes(1024 * 1024)
    assert client.set("bytes", most) is True
    assert client.get("bytes") == most
    # The server answers and closes while the client is still sending, so the client may see either first.
    with pytest.raises((redis.ResponseError, redis.ConnectionError)):
        client.set("bytes", most + b"x")
    assert client.get("bytes") == most


def test_what_ycsbs_redis_binding_sends(client):
    """A record is a hash, and a sorted set of all keys by hash serves scans."""
    index = "_indices"
    client.delete(index)
    for n in range(100):
        client.hset(f"user{n}", mapping={f"field{f}": f"{n}:{f}" for f in range(10)})
        client.zadd(index, {f"user{n}": (n * 37) % 100})
    assert client.hgetall("user42") == {f"field{f}": f"42:{f}" for f in range(10)}
    assert client.hmget("user42", "field3", "nothing") == ["42:3", None]
    client.hset("user42", mapping={"field3": "new"})
    assert client.hget("user42", "field3") == "new"
    found = client.zrangebyscore(index, 50, "+inf", start=0, num=10)
    assert [int(key[4:]) * 37 % 100 for key in found] == list(range(50, 60))
    assert client.delete("user42") == 1 and client.zrem(index, "user42") == 1
    assert client.hgetall("user42") == {}
    assert client.zcard(index) == 99


def test_a_watched_key_makes_a_transaction_conditional(client):
    client.set("ship", 1)

    def add(pipeline):
        seen = int(pipeline.get("ship"))
        pipeline.multi()
        pipeline.set("ship", seen + 1)

    assert client.transaction(add, "ship") == [True]
    assert client.get("ship") == "2"
    with client.pipeline() as pipeline:
        pipeline.watch("ship")
        client.set("ship", 10)
        pipeline.multi()
        pipeline.set("ship", 3)
        with pytest.raises(redis.WatchError):
            pipeline.execute()
    assert client.get("ship") == "10"


def test_every_key_is_walked_over_once(client):
    for n in range(500):
        client.set(f"walk:{n}", n)
    assert sorted(client.scan_iter("walk:*", count=7)) == sorted(f"walk:{n}" for n in range(500))
    client.hset("ship", mapping={str(n): n for n in range(300)})
    assert dict(client.hscan_iter("ship", count=11)) == {str(n): str(n) for n in range(300)}


def test_an_expired_key_is_gone(client):
    client.set("ship", 1, px=1)
    while client.exists("ship"):
        pass
    assert client.get("ship") is None
    client.set("ship", 1, ex=100)
    assert 95 < client.ttl("ship") <= 100


def test_expiries_survive_a_restart(tmp_path):
    first = Server(tmp_path)
    client = first.connect(decode_responses=True)
    client.set("long", 1, ex=1000)
    client.set("short", 1, px=1)
    client.hset("hash", "field", 1)
    client.expire("hash", 1000)
    first.stop()
    second = Server(tmp_path)
    client = second.connect(decode_responses=True)
    assert 900 < client.ttl("long") <= 1000
    assert 900 < client.ttl("hash") <= 1000
    assert client.exists("short") == 0
    assert client.hgetall("hash") == {"field": "1"}
    second.stop()


def test_a_client_can_be_seen_and_ended(server, client):
    other = server.connect(decode_responses=True, client_name="other")
    other.ping()
    listed = {row["name"]: row for row in client.client_list()}
    assert listed["other"]["addr"].startswith("127.0.0.1:")
    assert listed["other"]["lib-name"] == "redis-py"
    assert client.client_kill_filter(_id=listed["other"]["id"]) == 1
    assert client.client_info()["cmd"] == "client"


def test_the_time_is_told_and_figures_begin_anew(client):
    seconds, microseconds = client.time()
    assert seconds > 1_700_000_000 and 0 <= microseconds < 1_000_000
    client.set("ship", 1)
    assert client.config_resetstat() is True
    assert "cmdstat_set" not in client.info("commandstats")
    with pytest.raises(redis.ResponseError, match="change the settings file"):
        client.config_set("maxclients", 5)
