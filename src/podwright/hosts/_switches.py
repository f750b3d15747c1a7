"""The switches of `scontrol show topology`, and whether a job's nodes are on as few as possible.

Slurm can lose its topology silently: redundant updates of nodes have switched topology-aware
placement off, and a mixed partition defeats it. A grant is therefore checked once more, after it is
made. Pure. `slurm.reader` exports the same reader to the floors above.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from podwright.errors import FieldNotKnown
from podwright.hosts._hostlist import expand

_PAIR: Final = re.compile(r"(?:^|\s)([A-Z]\w*)=(\S*)")


class NetworkSwitch(NamedTuple):
    """A switch of a tree, or a block.

    leaf: nodes are attached to it. size: of a block; 0: no block.
    """

    name: str
    leaf: bool
    nodes: tuple[str, ...]
    size: int = 0


def read_switches(topology: str) -> list[NetworkSwitch]:
    """Return the switches and blocks of `scontrol show topology`, in its order.

    Raises FieldNotKnown for a line that lacks a field, or that begins with an unknown one.
    """
    switches = []
    for line in topology.splitlines():
        fields = dict(_PAIR.findall(line))
        if not fields or "Topology" in fields or "TopologyName" in fields:
            continue
        first = next(iter(fields))
        if first not in ("SwitchName", "BlockName", "AggregatedBlock"):
            raise FieldNotKnown.of("SwitchName or BlockName", f"scontrol show topology: {first}=")
        if first == "AggregatedBlock":
            continue
        record = f"{first.removesuffix('Name').lower()} {fields[first]}"

        def text(field: str, fields: dict[str, str] = fields, record: str = record) -> str:
            if field not in fields:
                raise FieldNotKnown.of(field, record)
            return fields[field]

        listed = text("Nodes")
        block = first == "BlockName"
        switches.append(
            NetworkSwitch(
                name=fields[first],
                leaf=block or text("Level") == "0",
                nodes=() if listed in ("(null)", "") else tuple(expand(listed)),
                size=int(fields.get("BlockSize", "0")) if block else 0,
            )
        )
    return switches


def scattered(nodes: Sequence[str], topology: str) -> str:
    """Return what is wrong with the placement of these nodes, in a sentence; empty if nothing is.

    topology: the output of `scontrol show topology`.
    """
    try:
        leaves = {
            switch.name: switch.nodes
            for switch in read_switches(topology)
            if switch.leaf and switch.nodes
        }
    except FieldNotKnown as error:
        return f"the number of switches between the job's nodes cannot be judged: {error.problem}"
    counts = {name: len(set(nodes) & set(hosts)) for name, hosts in leaves.items()}
    used = [name for name, count in counts.items() if count]
    if sum(counts[name] for name in used) < len(nodes) or len(used) < 2:
        return ""
    sizes = sorted((len(hosts) for hosts in leaves.values()), reverse=True)
    fewest = next(n for n in range(1, len(sizes) + 1) if sum(sizes[:n]) >= len(nodes))
    if len(used) <= fewest:
        return ""
    names = ", ".join(used[:6]) + (", …" if len(used) > 6 else "")
    return (
        f"the {len(nodes)} nodes of the job hang on {len(used)} switches ({names}), and {fewest} "
        "could hold them: others were busy, or Slurm lost its topology. "
        f"sbatch --switches={fewest} waits for them"
    )
