"""redis-cli, as people use it."""

import os
import pty
import subprocess


def test_what_it_sets_it_gets(server):
    assert server.run("redis-cli", "set", "cli", "a b\n") == "OK\n"
    assert server.run("redis-cli", "get", "cli") == "a b\n\n"
    assert server.run("redis-cli", "--no-raw", "get", "nothing") == "(nil)\n"
    assert server.run("redis-cli", "--no-raw", "del", "cli") == "(integer) 1\n"


def test_it_speaks_resp3(server):
    assert server.run("redis-cli", "-3", "--no-raw", "config", "get", "save") == '1# "save" => ""\n'
    assert "# Plimsoll" in server.run("redis-cli", "-3", "info")


def test_it_loads_many_keys_through_its_pipe(server):
    commands = "".join(f"SET pipe:{n} {n}\r\n" for n in range(10_000))
    told = server.run("redis-cli", "--pipe", input=commands)
    assert "errors: 0, replies: 10000" in told
    assert server.run("redis-cli", "get", "pipe:9999") == "9999\n"


def test_its_prompt_learns_the_commands(server):
    """At a terminal it asks COMMAND DOCS before the first prompt."""
    ours, theirs = pty.openpty()
    cli = subprocess.Popen(
        ["redis-cli", "-p", str(server.port)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        # A terminal without cursor keys, which accepts typeahead.
        env={**os.environ, "TERM": "dumb"},
    )
    os.close(theirs)
    os.write(ours, b"ping\nquit\n")
    shown = b""
    while True:
        try:
            some = os.read(ours, 4096)
        except OSError:  # the terminal's error once its program has ended
            break
        if not some:
            break
        shown += some
    os.close(ours)
    assert cli.wait(timeout=60) == 0
    assert b"PONG" in shown
