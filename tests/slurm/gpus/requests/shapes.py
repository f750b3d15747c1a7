"""The nodes that requests were tried on: as Slurm is told of them, and as our rules are.

Each has two sockets or more, or one; GPUs evenly beside them, unevenly, beside one alone, of two
types, or beside none (gres.conf without Cores).
"""

from __future__ import annotations

from typing import NamedTuple

from podwright.slurm.gpus.requests import EVERY_SOCKET, NodeHardware

NODES = 4


class Row(NamedTuple):
    """A line of gres.conf: so many GPUs of a type beside a socket, or beside every one."""

    kind: str
    gpus: int
    socket: int


class Layout(NamedTuple):
    """Sockets and cores of a node, and its GPUs in the order of their numbers."""

    sockets: int
    cores: int
    rows: tuple[Row, ...]

    def shape(self) -> NodeHardware:
        """What our rules are told."""
        each = [row for row in self.rows for _ in range(row.gpus)]
        return NodeHardware(
            nodes=NODES,
            sockets=self.sockets,
            cores_per_socket=self.cores,
            gpus=len(each),
            kinds=self.kinds(),
            confined=False,
            beside=tuple(row.socket for row in each),
            types=tuple(row.kind for row in each),
        )

    def kinds(self) -> tuple[str, ...]:
        """The types, in the order of their first GPUs."""
        return tuple(dict.fromkeys(row.kind for row in self.rows))

    def gres_conf(self) -> str:
        """gres.conf, with device files in the lab's folder."""
        lines, at = ["AutoDetect=off"], 0
        for row in self.rows:
            last = at + row.gpus - 1
            files = f"gpu[{at}-{last}]" if row.gpus > 1 else f"gpu{at}"
            line = f"NodeName=n[1-{NODES}] Name=gpu Type={row.kind} File=@LAB@/{files}"
            if row.socket != EVERY_SOCKET:
                first = row.socket * self.cores
                line += f" Cores={first}-{first + self.cores - 1}"
            lines.append(line)
            at += row.gpus
        return "\n".join(lines) + "\n"

    def node(self) -> str:
        """What a node's line in slurm.conf adds."""
        gres = [
            f"gpu:{kind}:{sum(row.gpus for row in self.rows if row.kind == kind)}"
            for kind in self.kinds()
        ]
        return (
            f"Sockets={self.sockets} CoresPerSocket={self.cores} ThreadsPerCore=1 "
            f"Gres={','.join(gres)}"
        )


def _beside(*sockets: tuple[int, int], kind: str = "a100") -> tuple[Row, ...]:
    return tuple(Row(kind, gpus, socket) for gpus, socket in sockets)


LAYOUTS = {
    "even": Layout(2, 4, _beside((2, 0), (2, 1))),
    "more-on-first": Layout(2, 4, _beside((3, 0), (1, 1))),
    "more-on-second": Layout(2, 4, _beside((1, 0), (3, 1))),
    "first-only": Layout(2, 4, _beside((4, 0))),
    "second-only": Layout(2, 4, _beside((4, 1))),
    "two-types": Layout(2, 4, (*_beside((2, 0)), *_beside((2, 1), kind="v100"))),
    "types-mixed": Layout(
        2, 4, (*_beside((1, 0)), *_beside((2, 0), kind="v100"), *_beside((1, 1), kind="v100"))
    ),
    "types-on-first": Layout(2, 4, (*_beside((2, 0)), *_beside((2, 0), kind="v100"))),
    "one-socket": Layout(1, 8, _beside((4, EVERY_SOCKET))),
    "no-cores": Layout(2, 4, _beside((4, EVERY_SOCKET))),
    "four-sockets": Layout(4, 2, _beside((1, 0), (1, 1), (1, 2), (1, 3))),
    "eight": Layout(2, 8, _beside((4, 0), (4, 1))),
    "few-cores": Layout(2, 2, _beside((2, 0), (2, 1))),
}
