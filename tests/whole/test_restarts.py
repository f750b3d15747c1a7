"""A launch that starts its instances anew, over gRPC, whose threads would be in every fork."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

from podwright.hosts import NOT_HELD, can_hold, in_words
from tests.whole.conftest import Pod

#: It ends once gRPC's threads are idle: only then are they started anew in a fork.
ONCE = '[ "$PODWRIGHT_RESTART" = 2 ] || { sleep 2; exit 3; }'


def test_instances_of_every_attempt_are_held_alike(make_pod: Callable[..., Pod]) -> None:
    pod = make_pod("--preset", "pod16")
    deadline = time.monotonic() + 300
    # The server answers on its socket before it has written where it listens.
    while not (found := re.search(r"on (127\.0\.0\.1):(\d+)", pod.log())):
        assert time.monotonic() < deadline, pod.log()
        time.sleep(0.02)
    server = {"IPUOF_VIPU_API_HOST": found[1], "IPUOF_VIPU_API_PORT": found[2]}
    del pod.environ["PODWRIGHT_SOCKET"]  # it would be taken first
    line = ("--num-replicas=2", "--num-instances=2", "--max-restarts=2", "sh", "-c", ONCE)
    ran = pod.run("poprun", "-v", *line, environ=server)
    assert ran.code == 0, ran
    assert f"server {found[1]}:{found[2]}" in ran.err
    assert "starting all instances again (2 of 2)" in ran.err
    assert "pthread_create" not in ran.err
    how, why, private = can_hold()
    if how != NOT_HELD:
        assert ran.err.count(in_words(how, why, private)) == 3
    left = pod.run("vipu", "list", "partitions", "--json", environ={"VIPU_CLI_API_PORT": found[2]})
    assert json.loads(left.out) == []
