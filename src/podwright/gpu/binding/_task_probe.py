"""The program that each task of the probing job runs: it prints one line about its GPUs and its
cores."""

from __future__ import annotations

import json
import os
import sys

from podwright.gpu.binding._verdict import TASK_LINE_PREFIX
from podwright.hosts import host_name, write_list
from podwright.hosts.gpus import VARIABLES, take_inventory, visible


def main() -> int:
    """Print the line with a single write, because all tasks share one stream."""
    environ = os.environ
    inventory = take_inventory(environ)
    visible_gpus = visible(environ, inventory.gpus)
    visible_devices = next(
        (
            environ[variable_name]
            for variable_name in VARIABLES.values()
            if variable_name in environ
        ),
        None,
    )
    task_fields = {
        "rank": int(environ.get("SLURM_PROCID", "0")),
        "local_rank": int(environ.get("SLURM_LOCALID", "0")),
        "node": environ.get("SLURMD_NODENAME") or host_name(),
        "variable": visible_devices,
        "on_node": environ.get("SLURM_GPUS_ON_NODE", ""),
        "cpus": write_list(os.sched_getaffinity(0)),
        "all_cpus": os.cpu_count() or 1,
        "simulated": inventory.simulated,
        "notes": list(inventory.notes),
        "gpus": [
            {
                "number": gpu.index,
                "uuid": gpu.uuid,
                "bus": gpu.bus,
                "type": gpu.type,
                "memory": gpu.memory,  # bytes
                "numa": gpu.node,
                "near": gpu.cpus,
            }
            for gpu in visible_gpus
        ],
    }
    os.write(1, f"{TASK_LINE_PREFIX}{json.dumps(task_fields)}\n".encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
