"""poprun with a server in one function, as a process of its own: `python -m tests.launcher.alone`.

Everything but the server is real. The server's requests go to the file named by CALLS. MEMORY names
a folder that replaces /dev/shm, where other tests have runs of their own.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping

from podwright.client import Client, FakeTransport, FoundServer
from podwright.errors import Fenced, NoCapacity, NotFound, PodwrightError
from podwright.hosts import read_cores
from podwright.launcher import Plan, launch, make_plan, parse, places_instances
from podwright.launcher.instances import _run_folder
from podwright.launcher.watchers import _lease_keeper, _stop_detection
from podwright.wire import (
    AcquireReply,
    AcquireRequest,
    Empty,
    GatewayRouting,
    LeaseInfo,
    PartitionInfo,
    Routing,
    ServerInfo,
    SyncType,
    Value,
)


def answer(method: str, request: Value) -> Value:
    """Return the server's reply.

    A partition named `full` is refused, and `slow` waits until the file GO exists. With LOSE, the
    first reply is lost. Every reply is lost once the file LOST exists.
    """
    with open(os.environ["CALLS"], "a", encoding="utf-8") as file:
        print(json.dumps(method), file=file)
    if isinstance(request, AcquireRequest):
        if request.spec.name == "full":
            raise NoCapacity("nothing is free")
        deadline = time.monotonic() + 300
        while request.spec.name == "slow" and not os.path.exists(os.environ["GO"]):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        name = request.spec.name or "run-1"
        partition = PartitionInfo(
            name=name,
            cluster="pod",
            allocation="pod",
            size=request.spec.size,
            num_gcds=request.spec.num_gcds,
            num_replicas=request.spec.num_replicas,
            num_ilds=request.spec.num_ilds or 1,
            routing=Routing.DNC,
            gw_routing=GatewayRouting.DEFAULT,
            sync_type=SyncType.DEFAULT,
            simulated=True,
        )
        lease = LeaseInfo(id="lease", partition=name, epoch=1)
        return AcquireReply(lease=lease, partition=partition, created=True)
    if method == "Renew":
        if os.path.exists(os.environ.get("LOST", "")):
            raise Fenced("somebody else has it now")
        if os.environ.get("LOSE") and _asked("Acquire") == 1:
            raise Fenced("somebody else has it now")
        return LeaseInfo(id="lease", partition="", epoch=1)
    if method == "Release":
        return Empty()
    raise NotFound(method)


def _asked(method: str) -> int:
    """Return how often the server was asked for it, by all the runs that write to one file."""
    with open(os.environ["CALLS"], encoding="utf-8") as file:
        return [json.loads(line) for line in file].count(method)


def boottime() -> float:
    """Return CLOCK_BOOTTIME; an hour later, as after a suspension, once the file SLEPT exists."""
    slept = 3600.0 if os.path.exists(os.environ.get("SLEPT", "")) else 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) + slept


def find(plan: Plan, environ: Mapping[str, str]) -> FoundServer:
    """Return the server, wherever the plan looks for it."""
    info = ServerInfo(version="1", host="127.0.0.1", port=8090)
    return FoundServer(Client(FakeTransport(answer, "127.0.0.1:8090")), info, "named")


def main() -> int:
    """Run poprun."""
    _run_folder.SHARED_MEMORY = os.environ.get("MEMORY", _run_folder.SHARED_MEMORY)
    for module in (_stop_detection, _lease_keeper):
        assert hasattr(module, "boottime")
        module.boottime = boottime  # type: ignore[attr-defined]
    try:
        options = parse(sys.argv[1:])
        cores = read_cores(os.environ) if places_instances(options) else None
        plan = make_plan(options, os.environ, cores=cores)
        return launch(plan, os.environ, find=find).code
    except PodwrightError as error:
        print(f"POPRUN ERROR: {error.message}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
