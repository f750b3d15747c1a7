"""Nodes are drained and resumed by rules, and nodes that become ill at once agree.

A stand-in for slurmctld changes one node after another and counts seconds. hypothesis chooses which
node goes on next, how long that takes, and which one dies on the way.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwright.gpu.health._drain_actions import carry_out
from podwright.gpu.health._drain_decisions import (
    CLOCK_TICK_SECONDS,
    Drain,
    GateOutcome,
    Look,
    NodeGate,
    NodeRow,
    Resume,
    Step,
    Wait,
    over,
    read_rows,
)

ILL = "podwright: GPU 3 XID 79"


class Ctld:
    """slurmctld: states and reasons of nodes, and a clock that shows whole seconds."""

    def __init__(self, partitions: dict[str, list[str]]) -> None:
        self.partitions = partitions
        self.now = 1000.0
        self.reasons: dict[str, tuple[str, str]] = {}

    def rows(self) -> list[NodeRow]:
        return [
            NodeRow(
                node, name, "drained" if since else "idle", since or "Unknown", reason or "none"
            )
            for name, nodes in self.partitions.items()
            for node in nodes
            for since, reason in (self.reasons.get(node, ("", "")),)
        ]

    def do(self, node: str, step: Step) -> object:
        if isinstance(step, Look):
            return self.rows()
        if isinstance(step, Drain):
            self.reasons[node] = (f"{int(self.now):09d}", step.reason)
        elif isinstance(step, Resume):
            self.reasons.pop(node, None)
        return True

    def ours(self, partition: str) -> list[str]:
        return [row.node for row in self.rows() if row.partition == partition and row.ours]


def alone(gate: NodeGate, reason: str, ctld: Ctld) -> GateOutcome:
    steps = gate.steps(reason)
    answer: object = None
    while True:
        try:
            answer = ctld.do(gate.node, steps.send(answer))
        except StopIteration as end:
            outcome: GateOutcome = end.value
            return outcome


def twenty() -> Ctld:
    return Ctld({"gpu": [f"n{k:02d}" for k in range(20)]})


def test_an_ill_node_is_drained_and_given_back_when_it_is_well() -> None:
    ctld = twenty()
    gate = NodeGate("n03", "drain")
    assert alone(gate, ILL, ctld) == ("drained", ILL)
    assert ctld.reasons["n03"][1] == ILL
    assert alone(gate, ILL, ctld).action == "drained"
    assert alone(gate, "", ctld).action == "resumed"
    assert alone(gate, "", ctld).action == "fit"
    assert ctld.reasons == {}


def test_a_gate_drains_nothing_until_it_is_told_to() -> None:
    ctld = twenty()
    assert alone(NodeGate("n03"), ILL, ctld).action == "warned"
    assert ctld.reasons == {}


def test_a_drain_of_somebody_else_is_left_alone() -> None:
    ctld = twenty()
    ctld.reasons["n03"] = ("000000001", "Bob: memory ordered")
    gate = NodeGate("n03", "drain")
    assert alone(gate, ILL, ctld).action == "left"
    assert alone(gate, "", ctld).action == "fit"
    ctld.reasons["n03"] = ("000000001", f"{ILL}, Bob: part ordered")
    assert alone(gate._replace(recorded=ILL), "", ctld).action == "left"
    assert len(ctld.reasons) == 1


def test_beyond_the_cap_it_only_warns() -> None:
    ctld = twenty()
    assert alone(NodeGate("n03", "drain"), ILL, ctld).action == "drained"
    assert alone(NodeGate("n04", "drain"), ILL, ctld).action == "warned"
    assert alone(NodeGate("n04", "drain", cap=10), ILL, ctld).action == "drained"
    assert alone(NodeGate("n05", "drain", cap=10), ILL, ctld).action == "warned"


def test_a_node_of_two_partitions_keeps_both_caps() -> None:
    ctld = Ctld({"all": [f"n{k}" for k in range(40)], "big": ["n1", "n2"]})
    assert alone(NodeGate("n1", "drain"), ILL, ctld).action == "drained"
    assert alone(NodeGate("n2", "drain"), ILL, ctld).reason.startswith(
        "1 of 2 nodes of partition big"
    )
    assert alone(NodeGate("n3", "drain"), ILL, ctld).action == "drained"
    assert alone(NodeGate("n4", "drain"), ILL, ctld).action == "warned"


def test_without_slurms_word_nothing_is_changed() -> None:
    steps = NodeGate("n1", "drain").steps(ILL)
    assert isinstance(next(steps), Look)
    with pytest.raises(StopIteration) as end:
        steps.send(None)
    assert end.value.value.action == "unknown"


class _Node:
    """One node's check in progress: its next step, and the earliest time of it."""

    def __init__(self, gate: NodeGate) -> None:
        self.gate = gate
        self.steps: Generator[Step, object, GateOutcome] = gate.steps(ILL)
        self.next: Step | None = next(self.steps)
        self.not_before = 0.0
        self.outcome: GateOutcome | None = None

    def go(self, ctld: Ctld) -> None:
        assert self.next is not None
        if isinstance(self.next, Wait) and not self.not_before:
            self.not_before = ctld.now + CLOCK_TICK_SECONDS
            return
        if ctld.now < self.not_before:
            return
        self.not_before = 0.0
        answer = ctld.do(self.gate.node, self.next)
        try:
            self.next = self.steps.send(answer)
        except StopIteration as end:
            self.next, self.outcome = None, end.value


def settle(ctld: Ctld, nodes: list[_Node], order: Iterable[int], pause: float) -> None:
    """Let nodes go on in this order, then all in turn until they end."""
    for index in order:
        if nodes[index].next is not None:
            nodes[index].go(ctld)
            ctld.now += pause
    while left := [node for node in nodes if node.next is not None]:
        for node in left:
            node.go(ctld)
        ctld.now += 0.1


def agreed(ctld: Ctld, nodes: list[_Node], most: int, cap: float) -> bool:
    """Check that as many nodes are drained as may be, and that each of them reports it."""
    stay = ctld.ours("gpu")
    said = [n.gate.node for n in nodes if n.outcome is not None and n.outcome.action == "drained"]
    return (
        1 <= len(stay) <= most
        and sorted(stay) == sorted(said)
        and not any(over(ctld.rows(), name, cap) for name in stay)
    )


@pytest.mark.parametrize("pause", [0.05, 0.25])
def test_two_nodes_agree_in_every_order_of_their_steps(pause: float) -> None:
    for order in itertools.product((0, 1), repeat=9):
        ctld = twenty()
        nodes = [_Node(NodeGate(name, "drain")) for name in ("n05", "n04")]
        settle(ctld, nodes, order, pause)
        assert agreed(ctld, nodes, 1, 5), order


@given(st.data())
def test_many_sick_nodes_agree_on_who_stays_drained(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 60), "nodes")
    cap = data.draw(st.sampled_from((1, 5, 12, 40)), "cap")
    names = [f"n{k:02d}" for k in range(count)]
    ill = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True), "ill")
    order = data.draw(st.lists(st.integers(0, len(ill) - 1), max_size=80), "order")
    ctld = Ctld({"gpu": names})
    nodes = [_Node(NodeGate(name, "drain", cap)) for name in ill]
    settle(ctld, nodes, order, data.draw(st.sampled_from((0.0, 0.01, 0.3)), "pause"))
    assert agreed(ctld, nodes, max(1, count * cap // 100), cap)


def test_rows_are_read_whatever_a_reason_holds() -> None:
    text = "n1|gpu|drained|2026-11-22T09:10:54|podwright: GPU 3 | XID\nn2|gpu|IDLE|Unknown|none\n"
    rows = read_rows(text + "a line of something else\n")
    assert [(row.node, row.ours, row.reason) for row in rows] == [
        ("n1", True, "podwright: GPU 3 | XID"),
        ("n2", False, "none"),
    ]


def test_a_gate_tells_slurm_and_remembers_its_own_reason(tmp_path: Path) -> None:
    said: list[list[str]] = []
    table = "n1|gpu|idle|Unknown|none\n"

    def run(words: object) -> str:
        nonlocal table
        said.append(list(words))  # type: ignore[call-overload]
        if said[-1][0] == "sinfo":
            return table
        drained = said[-1][-1].startswith("Reason")
        table = f"n1|gpu|drained|now|{ILL}\n" if drained else "n1|gpu|idle|Unknown|none\n"
        return ""

    waited: list[float] = []
    gate = NodeGate("n1", "drain")
    assert carry_out(gate, ILL, run, waited.append, tmp_path).action == "drained"
    assert said[1] == ["scontrol", "update", "NodeName=n1", "State=DRAIN", f"Reason={ILL}"]
    assert waited == [CLOCK_TICK_SECONDS]
    table = table.replace("XID 79", "XID 79 (Bob)")
    assert carry_out(gate, "", run, waited.append, tmp_path).action == "left"
    table = table.replace(" (Bob)", "")
    assert carry_out(gate, "", run, waited.append, tmp_path).action == "resumed"
    assert carry_out(gate, "", lambda words: None, waited.append, tmp_path).action == "unknown"
