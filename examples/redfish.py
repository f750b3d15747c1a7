"""What `make demo DEMO=redfish` runs: devices are composed to two hosts, and trained on.

The fabric is the project's own small Redfish service, on loopback. A partition of sixteen
devices takes eight of each of two hosts, and each host gets a zone of its own there. A program
trains on all sixteen, and everything is given back: no zone is left.

Eight more devices are a pool, which has no home: a partition names the host that gets them.
"""

from __future__ import annotations

import os
import re
import sys

from demo import PROGRAM, Demo, Failed, check_nothing_left, perform

from podwright.testing import FABRIC_PATH, RedfishServer, RedfishStandIn, endpoint_path

MACHINES = {"host1": 8, "host2": 8}
CLUSTER = """\
name = "composed"
family = "composable"
simulated = true

[[link_domains]]
name = "pcie"
machines = ["host1", "host2"]
"""

CHASSIS = {"chassis1": 8}
POOL = """\
name = "pool"
family = "pool8"
simulated = true

[[link_domains]]
name = "pcie"
machines = ["chassis1"]
"""
#: The hosts of the pool: this one, and another.
HERE, OTHER = os.uname().nodename, "another-host"


def inventory() -> str:
    """Which endpoint is which device of which machine, and which is which host of the pool."""
    lines = []
    for machine, count in {**MACHINES, **CHASSIS}.items():
        devices = ", ".join(f'"{endpoint_path(machine, index)}"' for index in range(count))
        lines += [f"[machines.{machine}]", f"devices = [{devices}]"]
        if machine in MACHINES:
            lines += [f'host = "{endpoint_path(machine)}"']
    lines += [
        "[hosts]",
        *(f'"{host}" = "{endpoint_path(host)}"' for host in (HERE, OTHER)),
    ]
    return "\n".join(lines)


def show_zones(service: RedfishStandIn) -> None:
    """What is composed now."""
    print("\nThe zones of the Redfish fabric:", flush=True)
    for name, endpoints in sorted(service.endpoints_by_zone().items()):
        names = sorted(path.rpartition("/")[2] for path in endpoints)
        print(f"  {name}: {', '.join(names)}", flush=True)
    if not service.zones:
        print("  none", flush=True)


def show(demo: Demo, server: RedfishServer) -> None:
    """The demo itself. Raises Failed."""
    cluster, identities = demo.folder / "cluster.toml", demo.folder / "fabric.toml"
    pool = demo.folder / "pool.toml"
    cluster.write_text(CLUSTER)
    pool.write_text(POOL)
    identities.write_text(inventory())
    print("This demo uses simulated devices behind a small Redfish service of its own.", flush=True)
    demo.start_server(
        *("--cluster-file", str(cluster), "--cluster-file", str(pool)),
        *("--redfish", f"{server.url}{FABRIC_PATH}", "--fabric-inventory", str(identities)),
    )
    before = set(demo.processes())
    demo.run("vipu", "create", "partition", "two-hosts", "--size", "16")
    show_zones(server.service)
    if {name: len(paths) for name, paths in server.service.endpoints_by_zone().items()} != {
        "podwright-two-hosts-host1": 9,
        "podwright-two-hosts-host2": 9,
    }:
        raise Failed("the zones are not those of the partition")
    output = demo.run(
        "poprun", "--vipu-partition", "two-hosts", "--num-replicas", "16", "--num-instances", "2",
        "python3", PROGRAM,
    )  # fmt: skip
    reached = re.search(r"test accuracy (\d\.\d+)", output)
    if not reached or float(reached[1]) < 0.95:
        raise Failed("the program did not reach a test accuracy of 0.95")
    demo.run("vipu", "remove", "partition", "two-hosts")
    show_pool(demo, server)
    show_zones(server.service)
    if server.service.zones:
        raise Failed("zones are left")
    check_nothing_left(demo, before)


def show_pool(demo: Demo, server: RedfishServer) -> None:
    """Devices of a pool go to the host that a partition names, and to the host of a launch."""
    create = ("vipu", "create", "partition", "--allocation", "pool", "--size", "4", "--host")
    demo.run(*create, OTHER, "there")
    demo.run(*create, HERE, "here")
    show_zones(server.service)
    if set(server.service.endpoints_by_zone()) != {
        f"podwright-there-{OTHER}",
        f"podwright-here-{HERE}",
    }:
        raise Failed("the devices are not attached to the hosts that the partitions name")
    demo.run(
        "poprun", "--vipu-partition", "here", "--num-replicas", "4", "--num-instances", "2",
        "python3", "-c", "import popdist; popdist.init(); print(popdist.getInstanceIndex())",
    )  # fmt: skip
    for name in ("here", "there"):
        demo.run("vipu", "remove", "partition", name)


def main() -> int:
    """Returns the exit code."""
    service = RedfishStandIn({**MACHINES, **CHASSIS}, 1, [*MACHINES, HERE, OTHER])
    server = RedfishServer(service)
    try:
        return perform(lambda demo: show(demo, server))
    finally:
        server.close()


if __name__ == "__main__":
    sys.exit(main())
