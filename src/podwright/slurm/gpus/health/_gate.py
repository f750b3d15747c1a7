"""What Slurm is told of a node: drain it, give it back, or only warn. Decisions without effects.

A cluster is never drained: of each partition at most a share of its nodes, at least one. Nodes know
of each other through Slurm alone. Twenty that turn ill in one moment may all drain themselves, each
having seen none; so each looks again and all but the first ones take it back. First is who has the
earlier time of his reason, which slurmctld writes, then the earlier name. slurmctld changes one
node after another, and its clock counts seconds: who waits for more than one second before he looks
again sees everybody that can stand before him. So all agree, and exactly as many stay as may. A
node that died in between is counted by the others; what a stepped clock spoils, the next check of
each drained node mends, since it counts again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import NamedTuple

from podwright.slurm.gpus.health._findings import PREFIX

#: What `sinfo -a -h -N -o` is asked for; the reason is last, since it may hold anything.
FORMAT = "%N|%R|%T|%H|%E"
#: Seconds between draining and looking again: more than the second that slurmctld's clock counts.
SECOND = 1.2


class NodeRow(NamedTuple):
    """A node in one partition. since: when its reason was set, as sinfo writes it."""

    node: str
    partition: str
    state: str
    since: str
    reason: str

    @property
    def drained(self) -> bool:
        """Whether no new job starts on it by anybody's word."""
        return "drain" in self.state or "drng" in self.state

    @property
    def ours(self) -> bool:
        """Whether that word is ours."""
        return self.drained and self.reason.startswith(PREFIX)


def read_rows(text: str) -> list[NodeRow]:
    """What sinfo said in FORMAT."""
    found = [line.split("|", 4) for line in text.splitlines()]
    return [NodeRow(w[0], w[1], w[2].lower(), w[3], w[4]) for w in found if len(w) == 5]


class Look:
    """The rows of all nodes; answered with what sinfo says, None where Slurm does not answer."""


class Wait:
    """Let slurmctld's clock go on by a second."""


class Drain(NamedTuple):
    """Drain this node; answered with whether it was done."""

    reason: str


class Resume:
    """Give this node back; answered with whether it was done."""


Step = Look | Wait | Drain | Resume


class GateOutcome(NamedTuple):
    """what: fit, resumed, drained, warned, undone, left (somebody else drained it), unknown
    (Slurm did not answer). why: a sentence."""

    what: str
    why: str = ""


class NodeGate(NamedTuple):
    """One node's side. act: `drain`, or `warn` to change nothing. cap: per cent. recorded: the
    reason that this node drained itself with, as it remembers; None where it does not."""

    node: str
    act: str = "warn"
    cap: float = 5.0
    recorded: str | None = None

    def steps(self, reason: str) -> Generator[Step, object, GateOutcome]:
        """What to do. reason: why the node is ill; empty for a fit one."""
        rows = yield Look()
        if not isinstance(rows, list):
            return GateOutcome("unknown", "Slurm does not answer")
        mine = [row for row in rows if row.node == self.node]
        if not mine:
            return GateOutcome("unknown", f"Slurm has no node {self.node}")
        if not reason:
            return (yield from self._fit(mine[0]))
        if mine[0].drained and not mine[0].ours:
            return GateOutcome("left", f"it is drained already: {mine[0].reason}")
        if self.act != "drain":
            return GateOutcome("warned", "only warnings are asked for (act)")
        if not mine[0].ours:
            full = over(rows, self.node, self.cap, more=True)
            if full:
                return GateOutcome("warned", full)
            if not (yield Drain(reason)):
                return GateOutcome("unknown", "Slurm did not drain it")
        yield Wait()
        rows = yield Look()
        if not isinstance(rows, list):
            return GateOutcome("drained", "how many others are could not be counted yet")
        full = over(rows, self.node, self.cap)
        if not full:
            return GateOutcome("drained", reason)
        return GateOutcome("undone" if (yield Resume()) else "drained", full)

    def _fit(self, row: NodeRow) -> Generator[Step, object, GateOutcome]:
        if not row.ours:
            return GateOutcome("fit")
        if self.recorded is not None and self.recorded != row.reason:
            return GateOutcome("left", f"its reason is another than ours was: {row.reason}")
        return GateOutcome("resumed" if (yield Resume()) else "unknown", row.reason)


def over(rows: Iterable[NodeRow], node: str, cap: float, *, more: bool = False) -> str:
    """Why a node may not stay drained; empty where it may. more: why it may not be drained."""
    table = list(rows)
    for partition in dict.fromkeys(row.partition for row in table if row.node == node):
        names = {row.node for row in table if row.partition == partition}
        most = max(1, int(len(names) * cap / 100))
        ours = sorted(
            {(row.since, row.node) for row in table if row.partition == partition and row.ours}
        )
        before = [name for _, name in ours]
        if more or node in before:
            place = len(before) if more else before.index(node)
            if place >= most:
                return (
                    f"{len(ours)} of {len(names)} nodes of partition {partition} are drained by "
                    f"health checks, and {most} may be"
                )
    return ""
