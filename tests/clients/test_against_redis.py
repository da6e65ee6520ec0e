"""The same commands to a Redis server and to ours: every reply is the same."""

import random
import shutil
import socket
import subprocess

import pytest
import redis

KEYS = [b"a", b"b", b"c", b"d"]
# Redis adds with more digits than a double has, which shows in large numbers: this key has small ones only.
FLOATS = b"f"
WORDS = [b"", b"x", b"7", b"-3", b"1.5", b"hello", b"\x00\xff", b"9223372036854775807"]
MEMBERS = [b"m", b"n", b"o", b"p"]
NUMBERS = [b"0", b"1", b"-1", b"2", b"5", b"-7", b"nope", b"1.5"]
SCORES = [b"0", b"1", b"-1", b"1.5", b"3", b"inf", b"-inf", b"1e20", b"nope"]
BOUNDS = SCORES + [b"(1", b"(0", b"-inf", b"+inf"]

# Replies with a time, and how far those of two servers asked one after the other may differ.
TIMES_OFF = {b"ttl": 5, b"expiretime": 5, b"pttl": 5000, b"pexpiretime": 5000}
# Replies without a defined order: Redis answers in the order of its tables.
UNORDERED = {b"hkeys", b"hvals", b"keys"}


class Peer:
    """A server, and one connection to it."""

    def __init__(self, port, protocol):
        self.connection = redis.Connection(port=port, protocol=protocol)
        self.connection.connect()

    def ask(self, *words):
        self.connection.send_command(*words)
        try:
            return self.connection.read_response(disable_decoding=True)
        except redis.RedisError as error:
            return f"{type(error).__name__}: {error}"


@pytest.fixture(scope="session")
def redis_port(tmp_path_factory):
    directory = tmp_path_factory.mktemp("redis")
    program = shutil.which("redis-server")
    if program is None:
        # The package redis-tools has the same program under another name, and the name selects its function.
        program = directory / "redis-server"
        program.symlink_to(shutil.which("redis-check-rdb"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [program, "--port", str(port), "--save", "", "--bind", "127.0.0.1"],
        cwd=directory,
        stdout=subprocess.PIPE,
        text=True,
    )
    said = iter(process.stdout.readline, "")
    assert any("Ready to accept connections" in line for line in said), "redis-server ended early"
    yield port
    process.terminate()
    process.wait(timeout=60)


def some(rng, words, most=3):
    return [rng.choice(words) for _ in range(rng.randint(1, most))]


def pairs(rng, firsts, seconds):
    return [word for _ in range(rng.randint(1, 3)) for word in (rng.choice(firsts), rng.choice(seconds))]


def maybe(rng, *options):
    """Each of the options with its words, or not."""
    return [word for option in options if rng.random() < 0.3 for word in option]


def seconds(rng):
    """A time to live that no test reaches, far enough from others that both servers answer GT and LT alike."""
    return b"%d" % rng.randint(1_000, 10_000_000)


def milliseconds(rng):
    return seconds(rng) + b"000"


def command(rng):
    key = rng.choice(KEYS)
    number, score, word = rng.choice(NUMBERS), rng.choice(SCORES), rng.choice(WORDS)
    member, when, millis = rng.choice(MEMBERS), seconds(rng), milliseconds(rng)
    low, high = rng.choice(BOUNDS), rng.choice(BOUNDS)
    end = rng.choice([(b"EX", when), (b"PX", millis), (b"KEEPTTL",), (b"EXAT", b"9000000000"), (b"EX", number)])
    return rng.choice([
        [b"get", key],
        [b"set", key, word],
        [b"set", key, word, *maybe(rng, (b"NX",), (b"XX",), (b"GET",), end)],
        [b"setnx", key, word],
        [b"setex", key, when, word],
        [b"psetex", key, millis, word],
        [b"getset", key, word],
        [b"getdel", key],
        [b"getex", key, *maybe(rng, (b"PERSIST",), (b"EX", when))],
        [b"mget", *some(rng, KEYS)],
        [b"mset", *pairs(rng, KEYS, WORDS)],
        [b"msetnx", *pairs(rng, KEYS, WORDS)],
        [b"incr", key],
        [b"decr", key],
        [b"incrby", key, number],
        [b"decrby", key, number],
        [b"incrbyfloat", FLOATS, rng.choice([b"1", b"0.5", b"-2.25", b"nope"])],
        [b"append", key, word],
        [b"strlen", key],
        [b"getrange", key, number, rng.choice(NUMBERS)],
        [b"setrange", key, number, word],
        [b"del", *some(rng, KEYS)],
        [b"unlink", key],
        [b"exists", *some(rng, KEYS)],
        [b"type", key],
        [rng.choice([b"ttl", b"pttl", b"expiretime", b"pexpiretime"]), key],
        [b"touch", *some(rng, KEYS)],
        [b"pexpire", key, millis, *maybe(rng, (b"NX",), (b"GT",))],
        [b"persist", key],
        [b"expire", key, when, *maybe(rng, (b"NX",), (b"XX",), (b"GT",), (b"LT",))],
        [b"expireat", key, b"9000000000", *maybe(rng, (b"GT",), (b"LT",))],
        [b"pexpireat", key, rng.choice([b"1", b"9000000000000"])],
        [b"expire", key, rng.choice([b"-1", b"9223372036854775807", b"nope"])],
        [b"hset", key, *pairs(rng, MEMBERS, WORDS)],
        [b"hmset", key, *pairs(rng, MEMBERS, WORDS)],
        [b"hset", key, member, word, member],
        [b"hsetnx", key, member, word],
        [b"hget", key, member],
        [b"hmget", key, *some(rng, MEMBERS)],
        [b"hgetall", key],
        [b"hkeys", key],
        [b"hvals", key],
        [b"hlen", key],
        [b"hexists", key, member],
        [b"hstrlen", key, member],
        [b"hdel", key, *some(rng, MEMBERS)],
        [b"hincrby", key, member, number],
        [b"zadd", key, *pairs(rng, SCORES, MEMBERS)],
        [
            b"zadd",
            key,
            *maybe(rng, (b"NX",), (b"XX",), (b"GT",), (b"LT",), (b"CH",), (b"INCR",)),
            *pairs(rng, SCORES, MEMBERS),
        ],
        [b"zincrby", key, score, member],
        [b"zscore", key, member],
        [b"zmscore", key, *some(rng, MEMBERS)],
        [b"zcard", key],
        [b"zcount", key, low, high],
        [b"zrem", key, *some(rng, MEMBERS)],
        [b"zrange", key, number, rng.choice(NUMBERS), *maybe(rng, (b"REV",), (b"WITHSCORES",))],
        [
            b"zrange",
            key,
            low,
            high,
            b"BYSCORE",
            *maybe(rng, (b"REV",), (b"WITHSCORES",), (b"LIMIT", b"1", rng.choice([b"-1", b"1", b"2"]))),
        ],
        [b"zrevrange", key, number, rng.choice(NUMBERS), *maybe(rng, (b"WITHSCORES",))],
        [b"zrangebyscore", key, low, high, *maybe(rng, (b"WITHSCORES",), (b"LIMIT", number, b"2"))],
        [b"zrevrangebyscore", key, high, low, *maybe(rng, (b"WITHSCORES",), (b"LIMIT", b"0", b"1"))],
        [b"keys", rng.choice([b"*", b"[ab]", b"?", b"A"])],
        [b"scan", b"0", b"COUNT", b"100", *maybe(rng, (b"TYPE", b"zset"), (b"MATCH", b"[a-c]"))],
        [b"hscan", key, b"0"],
        [b"zscan", key, b"0"],
        [b"dbsize"],
        [b"dbsize"] if rng.random() < 0.9 else [rng.choice([b"flushdb", b"flushall"])],
        [b"multi"],
        [b"exec"],
        [b"exec"],
        [b"discard"],
        [b"watch", *some(rng, KEYS)],
        [b"unwatch"],
        [b"echo", word],
        [b"ping"],
        [b"select", rng.choice([b"0", b"nope"])],
        [rng.choice([b"get", b"hset", b"zadd", b"scan", b"expire", b"nope"])],
    ])


def comparable(words, reply):
    """The reply without its order and its exact time, which may differ."""
    name = words[0].lower()
    if isinstance(reply, list) and name in UNORDERED:
        return sorted(reply)
    if isinstance(reply, list) and name == b"hgetall":
        return sorted(zip(reply[::2], reply[1::2]))
    if isinstance(reply, list) and name in (b"scan", b"hscan", b"zscan") and len(reply) == 2:
        step = 1 if name == b"scan" else 2
        entries = reply[1]
        return [reply[0], sorted(tuple(entries[at : at + step]) for at in range(0, len(entries), step))]
    return reply


def alike(words, mine, other):
    off = TIMES_OFF.get(words[0].lower(), 0)
    if off and isinstance(mine, int) and isinstance(other, int) and mine > 0 and other > 0:
        return abs(mine - other) <= off
    return comparable(words, mine) == comparable(words, other)


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_any_commands_are_answered_alike(server, redis_port, seed, protocol):
    rng = random.Random(seed)
    ours, theirs = Peer(server.port, protocol), Peer(redis_port, protocol)
    ours.ask("flushall")
    theirs.ask("flushall")
    said = []
    queued = []
    for _ in range(3000):
        words = command(rng)
        said.append(words)
        mine, other = ours.ask(*words), theirs.ask(*words)
        if words[0] == b"exec" and isinstance(other, list) and isinstance(mine, list):
            assert len(mine) == len(other) == len(queued)
            replies = list(zip(queued, map(shown, mine), map(shown, other)))
        else:
            replies = [(words, mine, other)]
        if other == b"QUEUED":
            queued.append(words)
        elif words[0] in (b"multi", b"exec", b"discard"):
            queued = queued if words[0] == b"multi" and isinstance(other, str) else []
        for answered, mine, other in replies:
            assert alike(answered, mine, other), "\n".join(map(repr, [*said[-12:], mine, other]))


def shown(reply):
    return f"{type(reply).__name__}: {reply}" if isinstance(reply, redis.RedisError) else reply


@pytest.mark.parametrize("flush", [b"flushall", b"flushdb"])
@pytest.mark.parametrize("watched", [b"there", b"absent", b"came"])
def test_a_flush_changes_watched_keys_that_were_there(server, redis_port, watched, flush):
    told = []
    for port in (server.port, redis_port):
        one, other = Peer(port, 2), Peer(port, 2)
        one.ask(b"flushall")
        one.ask(b"set", b"there", b"v")
        one.ask(b"watch", watched)
        if watched == b"came":
            other.ask(b"set", b"came", b"v")
        other.ask(flush)
        told.append([one.ask(b"multi"), one.ask(b"set", b"k", b"v"), one.ask(b"exec")])
    assert told[0] == told[1]


@pytest.mark.parametrize(
    "words", [[b"hscan", b"h", b"0", b"NOVALUES"], [b"zscan", b"z", b"0", b"NOSCORES"]]
)
def test_walks_show_names_alone(server, redis_port, words):
    ours, theirs = Peer(server.port, 2), Peer(redis_port, 2)
    for peer in (ours, theirs):
        peer.ask(b"flushall")
        peer.ask(b"hset", b"h", b"a", b"1", b"b", b"2")
        peer.ask(b"zadd", b"z", b"1", b"a", b"2", b"b")
    mine, other = ours.ask(*words), theirs.ask(*words)
    assert [mine[0], sorted(mine[1])] == [b"0", [b"a", b"b"]]
    # Redis knows the one from 7.4 on, Valkey the other from 8.1 on.
    assert "syntax error" in str(other) or [other[0], sorted(other[1])] == [mine[0], sorted(mine[1])]
