"""Whether a Slurm job's nodes hang on as few switches as they could: Slurm can lose that silently.

Redundant updates of nodes have switched topology-aware placement off, and a mixed partition
defeats it. So what was granted is looked at once more, after the grant. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from podwright.hosts._hostlist import expand

_LEAF = re.compile(r"^(?:SwitchName|BlockName)=(\S+).*?\bNodes=(\S+)", re.M)
_UPPER = re.compile(r"^SwitchName=(\S+) Level=[1-9]\d*.*$", re.M)


def scattered(nodes: Sequence[str], topology: str) -> str:
    """What is wrong with these nodes, in a sentence; empty if nothing is.

    topology: the output of `scontrol show topology`.
    """
    upper = {row[1] for row in _UPPER.finditer(topology)}
    leaves = {
        name: expand(hosts)
        for name, hosts in _LEAF.findall(topology)
        if name not in upper and hosts != "(null)"
    }
    held = {name: len(set(nodes) & set(hosts)) for name, hosts in leaves.items()}
    used = [name for name, count in held.items() if count]
    if sum(held[name] for name in used) < len(nodes) or len(used) < 2:
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
