"""`podwright inventory`: this machine's GPUs, their links, its cores and its network adapters."""

from __future__ import annotations

from podwright.cli.shared._verb_definition import Verb
from podwright.ground import option_rows as opt


class _InventoryOptions(opt.OptionTable):
    json = opt.flag("print JSON, one line")


def _run(arguments: _InventoryOptions) -> int:
    """Run it. Returns the exit code."""
    import os

    from podwright.cli.shared._arguments import complain
    from podwright.hosts.gpus import take_inventory
    from podwright.hosts.gpus._inventory_text import inventory_text

    inventory = take_inventory(os.environ)
    if inventory.simulated:
        complain("SIMULATED: these GPUs exist only in software.")
    for note in inventory.notes:
        complain(f"podwright inventory: {note}")
    print(inventory.to_json() if arguments.json else inventory_text(inventory))
    return 0


VERBS = (
    Verb(
        "inventory",
        _InventoryOptions,
        _run,
        help="show the GPUs of this machine, and what lies around them",
        description="Show the GPUs of this machine: links, near cores, memory node, and the "
        "network adapters nearest to each. With --json it is one line. Of several nodes: `srun -N4 "
        "--ntasks-per-node=1 sh -c 'podwright inventory --json > node-$SLURMD_NODENAME.json'`, "
        "then `cat node-*.json > nodes.json` (srun mixes long lines that several nodes print).",
    ),
)
