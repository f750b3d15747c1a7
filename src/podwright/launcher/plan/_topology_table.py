"""The topology table of poprun: four rows, with cells that span the replicas that they cover.

The format is that of PopRun's own table, as its logs show it. Scripts read it.
"""

from __future__ import annotations

from collections.abc import Sequence

_TITLE = "poprun topology"
_LABEL = 11


def topology_table(hosts: Sequence[str], replicas: int, ilds: int | str) -> str:
    """Return the table. hosts: one for each instance. ilds: the number of link domains, or words if
    it is not known.
    """
    rows = [
        ("hosts", _runs(hosts, replicas)),
        ("ILDs", _domains(replicas, ilds)),
        ("instances", _even(len(hosts), replicas)),
        ("replicas", _even(replicas, replicas)),
    ]
    width = max(_needed(text, span) for _, cells in rows for text, span in cells)
    width = max(width, 3, -(-(len(_TITLE) + 1 - _LABEL) // replicas))
    inner = _LABEL + 1 + replicas * (width + 1) - 1
    rule = f"|{'-' * _LABEL}|{'-' * (inner - _LABEL - 1)}|"
    lines = [f" {'=' * inner}", f"|{_centred(_TITLE, inner)}|", f"|{'=' * inner}|"]
    for label, cells in rows:
        drawn = "|".join(_centred(text, span * (width + 1) - 1) for text, span in cells)
        lines += [f"|{' ' + label:<{_LABEL}}|{drawn}|", rule]
    lines[-1] = f" {'-' * inner}"
    return "\n".join(lines)


def _centred(text: str, width: int) -> str:
    """Centre a text. str.center puts an odd blank now left, now right; here it is always right."""
    return f"{' ' * ((width - len(text)) // 2)}{text}".ljust(width)


def _needed(text: str, span: int) -> int:
    """Return how wide a replica's cell must be for a text that spans several, with a blank on each
    side.
    """
    return -(-(len(text) + 2 - (span - 1)) // span)


def _even(count: int, replicas: int) -> list[tuple[str, int]]:
    return [(str(i), replicas // count) for i in range(count)]


def _runs(hosts: Sequence[str], replicas: int) -> list[tuple[str, int]]:
    share = replicas // len(hosts)
    cells: list[tuple[str, int]] = []
    for host in hosts:
        if cells and cells[-1][0] == host:
            cells[-1] = (host, cells[-1][1] + share)
        else:
            cells.append((host, share))
    return cells


def _domains(replicas: int, ilds: int | str) -> list[tuple[str, int]]:
    if isinstance(ilds, str):
        return [(ilds, replicas)]
    if replicas % ilds == 0:
        return _even(ilds, replicas)
    return [(f"0-{ilds - 1}", replicas)]
