"""The search for secrets finds them in Redis and among the arguments of processes."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from contextlib import closing

import redis

from tests.faults.leaks import in_arguments, in_redis

SECRETS = {"the key": "hunter2-hunter2"}
HELD = "before hunter2-hunter2 after"
WAITS = "import sys; print('up', flush=True); sys.stdin.read()"


def test_a_secret_is_found_under_a_key_of_any_type(redis_url: str) -> None:
    with closing(redis.Redis.from_url(redis_url)) as client:
        client.set("text", HELD)
        client.rpush("queue", "nothing", HELD)
        client.hset("hash", mapping={"field": HELD})
        client.sadd("set", HELD)
        client.zadd("ranked", {HELD: 1})
        client.xadd("log", {"line": HELD})
        client.set("fine", "nothing")
    assert sorted(in_redis(redis_url, SECRETS)) == sorted(
        f"the key stands in Redis under {name!r}"
        for name in (b"text", b"queue", b"hash", b"set", b"ranked", b"log")
    )


def test_a_secret_is_found_among_the_arguments_of_marked_processes_only() -> None:
    marker = uuid.uuid4().hex
    with subprocess.Popen(
        [sys.executable, "-c", WAITS, HELD], env={**os.environ, "MARK": marker},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline()
        assert in_arguments(marker, SECRETS) == [
            f"the key stands in the arguments of process {process.pid}"
        ]
        assert in_arguments(uuid.uuid4().hex, SECRETS) == []
        process.communicate()
