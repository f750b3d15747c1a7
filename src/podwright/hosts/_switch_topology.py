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

_TOPOLOGY_FIELD: Final = re.compile(r"(?:^|\s)([A-Z]\w*)=(\S*)")


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
        fields = dict(_TOPOLOGY_FIELD.findall(line))
        if not fields or "Topology" in fields or "TopologyName" in fields:
            continue
        first_field = next(iter(fields))
        if first_field not in ("SwitchName", "BlockName", "AggregatedBlock"):
            raise FieldNotKnown.of(
                "SwitchName or BlockName", f"scontrol show topology: {first_field}="
            )
        if first_field == "AggregatedBlock":
            continue
        line_label = f"{first_field.removesuffix('Name').lower()} {fields[first_field]}"

        def text(field: str, fields: dict[str, str] = fields, line_label: str = line_label) -> str:
            if field not in fields:
                raise FieldNotKnown.of(field, line_label)
            return fields[field]

        node_list = text("Nodes")
        is_block = first_field == "BlockName"
        switches.append(
            NetworkSwitch(
                name=fields[first_field],
                leaf=is_block or text("Level") == "0",
                nodes=() if node_list in ("(null)", "") else tuple(expand(node_list)),
                size=int(fields.get("BlockSize", "0")) if is_block else 0,
            )
        )
    return switches


def scattered(nodes: Sequence[str], topology: str) -> str:
    """Return what is wrong with the placement of these nodes, in a sentence; empty if nothing is.

    topology: the output of `scontrol show topology`.
    """
    try:
        nodes_by_leaf = {
            switch.name: switch.nodes
            for switch in read_switches(topology)
            if switch.leaf and switch.nodes
        }
    except FieldNotKnown as error:
        return f"the number of switches between the job's nodes cannot be judged: {error.problem}"
    node_counts = {
        name: len(set(nodes) & set(switch_nodes)) for name, switch_nodes in nodes_by_leaf.items()
    }
    used_switches = [name for name, node_count in node_counts.items() if node_count]
    if sum(node_counts[name] for name in used_switches) < len(nodes) or len(used_switches) < 2:
        return ""
    switch_sizes = sorted(
        (len(switch_nodes) for switch_nodes in nodes_by_leaf.values()), reverse=True
    )
    fewest_switches = next(
        switch_count
        for switch_count in range(1, len(switch_sizes) + 1)
        if sum(switch_sizes[:switch_count]) >= len(nodes)
    )
    if len(used_switches) <= fewest_switches:
        return ""
    switches_text = ", ".join(used_switches[:6]) + (", …" if len(used_switches) > 6 else "")
    return (
        f"the {len(nodes)} nodes of the job hang on {len(used_switches)} switches "
        f"({switches_text}), and {fewest_switches} "
        "could hold them: others were busy, or Slurm lost its topology. "
        f"sbatch --switches={fewest_switches} waits for them"
    )
