"""Decides what Slurm is told about a node: drain it, resume it, or only warn. Without effects.

Only a share of each partition's nodes is ever drained, but at least one. Nodes know of each other
only through Slurm. Twenty nodes that become ill at the same moment may all drain themselves,
because none has seen another. So each node looks again, and all but the first ones resume
themselves. The first is the node whose reason has the earlier time, which slurmctld writes, and at
equal times the one with the earlier name.

This is why all nodes agree on the order. slurmctld changes one node after another, and its clock
counts seconds. A node that waits for more than one second before it looks again sees every node
that can precede it. So exactly as many nodes stay drained as may. A node that died in between is
still counted by the others. If a stepped clock disturbs the order, the next check of each drained
node repairs that, since it counts again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import NamedTuple

from podwright.gpu.health._findings import HELD_PREFIX, REASON_PREFIX
from podwright.slurm.reader import node_listing_command, read_node_listing

#: The columns of sinfo. The reason comes last, because it may contain anything.
_SINFO_COLUMNS = ("node", "partition", "state", "since", "reason")
#: The command that prints these columns.
LIST_NODES_COMMAND = (*node_listing_command(*_SINFO_COLUMNS), "--all")
#: Seconds between draining and looking again: more than one tick of slurmctld's clock.
CLOCK_TICK_SECONDS = 1.2


class NodeRow(NamedTuple):
    """A node in one partition. since: when its reason was set, as sinfo writes it."""

    node: str
    partition: str
    state: str
    since: str
    reason: str

    @property
    def drained(self) -> bool:
        """Whether it gets no new job, whoever drained it."""
        return "drain" in self.state or "drng" in self.state

    @property
    def ours(self) -> bool:
        """Whether Podwright drained it."""
        return self.drained and self.reason.startswith(REASON_PREFIX)

    @property
    def held(self) -> bool:
        """Whether it is drained because an ended job holds a GPU."""
        return self.ours and self.reason.startswith(HELD_PREFIX)


def read_rows(sinfo_output: str) -> list[NodeRow]:
    """Return the rows in the output of LIST_NODES_COMMAND."""
    listing = read_node_listing(sinfo_output, *_SINFO_COLUMNS)
    return [NodeRow(**row)._replace(state=row["state"].lower()) for row in listing]


class Look:
    """Read the rows of all nodes. The answer is sinfo's output, or None where Slurm does not
    answer."""


class Wait:
    """Wait until slurmctld's clock has advanced by a second."""


class Drain(NamedTuple):
    """Drain this node. The answer is whether this was done."""

    reason: str


class Resume:
    """Resume this node. The answer is whether this was done."""


Step = Look | Wait | Drain | Resume


class GateOutcome(NamedTuple):
    """action: fit, resumed, drained, warned, undone, left (somebody else drained it), unknown
    (Slurm did not answer). reason: a sentence."""

    action: str
    reason: str = ""


class NodeGate(NamedTuple):
    """The decisions of one node. act: `drain`, or `warn` to change nothing. cap: per cent.

    recorded: the reason with which this node drained itself, from its own record; None if it has
    none. held: whether these are the decisions of `podwright node clean`: the health check and it
    resume only their own drains, and the cap counts both.
    """

    node: str
    act: str = "warn"
    cap: float = 5.0
    recorded: str | None = None
    held: bool = False

    def steps(self, illness_reason: str) -> Generator[Step, object, GateOutcome]:
        """Yield the steps, and return the outcome. illness_reason: why the node is ill; empty for a
        fit one.
        """
        node_rows = yield Look()
        if not isinstance(node_rows, list):
            return GateOutcome("unknown", "Slurm does not answer")
        own_rows = [row for row in node_rows if row.node == self.node]
        if not own_rows:
            return GateOutcome("unknown", f"Slurm has no node {self.node}")
        if not illness_reason:
            return (yield from self._fit_node_steps(own_rows[0]))
        if own_rows[0].drained and not own_rows[0].ours:
            return GateOutcome("left", f"it is drained already: {own_rows[0].reason}")
        if own_rows[0].ours and own_rows[0].held is not self.held:
            return GateOutcome("drained", f"it is drained already: {own_rows[0].reason}")
        if self.act != "drain":
            return GateOutcome("warned", "only warnings are asked for (act)")
        if not own_rows[0].ours:
            limit_problem = over(node_rows, self.node, self.cap, more=True)
            if limit_problem:
                return GateOutcome("warned", limit_problem)
            if not (yield Drain(illness_reason)):
                return GateOutcome("unknown", "Slurm did not drain it")
        yield Wait()
        node_rows = yield Look()
        if not isinstance(node_rows, list):
            return GateOutcome("drained", "how many others are could not be counted yet")
        limit_problem = over(node_rows, self.node, self.cap)
        if not limit_problem:
            return GateOutcome("drained", illness_reason)
        return GateOutcome("undone" if (yield Resume()) else "drained", limit_problem)

    def _fit_node_steps(self, own_row: NodeRow) -> Generator[Step, object, GateOutcome]:
        if not own_row.ours or own_row.held is not self.held:
            return GateOutcome("fit")
        if self.recorded is not None and self.recorded != own_row.reason:
            return GateOutcome("left", f"its reason is another than ours was: {own_row.reason}")
        return GateOutcome("resumed" if (yield Resume()) else "unknown", own_row.reason)


def over(rows: Iterable[NodeRow], node_name: str, cap_percent: float, *, more: bool = False) -> str:
    """Return why a node may not stay drained; empty if it may.

    more: the node is not drained yet, and would be one more.
    """
    node_rows = list(rows)
    for partition_name in dict.fromkeys(
        row.partition for row in node_rows if row.node == node_name
    ):
        partition_nodes = {row.node for row in node_rows if row.partition == partition_name}
        drain_limit = max(1, int(len(partition_nodes) * cap_percent / 100))
        own_drains = sorted(
            {
                (row.since, row.node)
                for row in node_rows
                if row.partition == partition_name and row.ours
            }
        )
        drain_order = [node for _, node in own_drains]
        if more or node_name in drain_order:
            drain_position = len(drain_order) if more else drain_order.index(node_name)
            if drain_position >= drain_limit:
                return (
                    f"{len(own_drains)} of {len(partition_nodes)} nodes of partition "
                    f"{partition_name} are drained by "
                    f"health checks, and {drain_limit} may be"
                )
    return ""
