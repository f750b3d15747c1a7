"""Hosts that nobody has here, as hwloc writes them."""

from __future__ import annotations


def xml(
    sockets: int, nodes: int, cores: int | list[int], threads: int = 1, *, version: int = 2
) -> str:
    """hwloc's XML of a host. nodes: NUMA nodes of each socket. cores: of each node, or one each.

    Hardware threads are numbered as Linux does on x86: first one of every core, then the second.
    """
    per_node = cores if isinstance(cores, list) else [cores] * (sockets * nodes)
    total = sum(per_node)
    lines = [f'<?xml version="1.0"?><topology version="{version}.0"><object type="Machine">']
    core = 0
    for socket in range(sockets):
        package = "Package" if version == 2 else "Socket"
        lines.append(f'<object type="{package}" os_index="{socket}">')
        for node in range(socket * nodes, (socket + 1) * nodes):
            own = "".join(_core(core + i, node, total, threads) for i in range(per_node[node]))
            core += per_node[node]
            if version == 2:  # memory hangs beside the cores; before, the cores hung in it
                lines.append(f'<object type="Group"><object type="NUMANode" os_index="{node}"/>')
            else:
                lines.append(f'<object type="NUMANode" os_index="{node}">')
            lines.append(f"{own}</object>")
        lines.append("</object>")
    return "".join([*lines, "</object></topology>"])


def _core(core: int, node: int, total: int, threads: int) -> str:
    words = [0] * (node // 32 + 1)
    words[-1 - node // 32] = 1 << node % 32
    mask = ",".join(f"0x{word:08x}" for word in words)
    units = "".join(
        f'<object type="PU" os_index="{core + total * t}" nodeset="{mask}"/>'
        for t in range(threads)
    )
    return (
        f'<object type="L2Cache"><object type="Core" os_index="{core}" nodeset="{mask}">'
        f"{units}</object></object>"
    )
