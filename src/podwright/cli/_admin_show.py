"""How `vipu-admin` lays out what it lists."""

from __future__ import annotations

import time

from podwright.api import MachineRow
from podwright.cli._tables import card, table
from podwright.wire import AgentInfo, ClusterTest, DiscoveredAgent, MoveTable, UserInfo


def agent_table(agents: list[AgentInfo]) -> str:
    """Our columns: V-IPU's are not known."""
    return table(
        ("Agent", "Host", "Port", "Cluster", "State", "Devices", "Last Seen", "Reason"),
        (
            (a.name, a.host, a.port, a.cluster, a.state, a.devices, _ago(a.last_seen), a.reason)
            for a in agents
        ),
    )


def moves_table(found: MoveTable) -> str:
    """Who moves for whom, and what the server has moved so far."""
    rows = [
        (m.partition, m.owner, m.size, m.state, m.waiter or "(drained)", m.to, f"{m.seconds:g}s")
        for m in found.moves
    ]
    heads = ("Partition", "Owner", "Size", "State", "For", "To", "Loses")
    asked = "Launches are asked to move" if found.allowed else "No launch is asked to move"
    so_far = f"{found.done} moved since the server's start, {found.failed} were asked and did not"
    words = f"{asked}; {found.movable} could be moved now; {so_far}."
    return f"{table(heads, rows)}\n{words}" if rows else words


def agent_card(agent: AgentInfo) -> str:
    """An agent for people."""
    return card(
        [
            ("Agent", agent.name),
            ("Address", f"{agent.host}:{agent.port}"),
            ("Cluster", agent.cluster),
            ("State", agent.state),
            ("Reason", agent.reason),
            ("Family", agent.family),
            ("Devices", agent.devices),
            ("Chips", " ".join(agent.chips)),
            ("Software", agent.software),
            ("Last Seen", _ago(agent.last_seen)),
        ]
    )


def discovered_table(agents: list[DiscoveredAgent]) -> str:
    """V-IPU's columns (V-IPU administrator guide, discovering agents)."""
    return table(
        ("Host", "Port", "Network Interface", "Time Since Last Seen", "Agent Auto-Add ID"),
        ((a.host, a.port, a.interface, f"{a.seen:.0f}s", a.name) for a in agents),
    )


def test_table(found: ClusterTest) -> str:
    """Our columns."""
    words = {True: "OK", False: "FAILED", None: "UNKNOWN"}
    return table(
        ("Machine", "Check", "Result", "What is wrong"),
        ((r.machine or found.cluster, r.check, words[r.ok], r.problem) for r in found.results),
    )


def user_table(users: list[UserInfo]) -> str:
    """Our columns."""
    return table(
        ("User", "Role", "Account", "Allocations"),
        (
            (u.name, u.role, "" if u.uid < 0 else u.uid, " ".join(u.allocations) or "all")
            for u in users
        ),
    )


def user_card(user: UserInfo) -> str:
    """A user for people."""
    created = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(user.created_at))
    return card(
        [
            ("User", user.name),
            ("Role", user.role),
            *([("Account", f"user id {user.uid}")] if user.uid >= 0 else []),
            ("Allocations", " ".join(user.allocations) or "all"),
            ("Created", created),
        ]
    )


def machine_table(machines: list[MachineRow]) -> str:
    """Our columns."""
    return table(
        ("Machine", "Cluster", "Allocation", "State", "Devices", "Free", "Partitions"),
        (
            (m.machine, m.cluster, m.allocation, m.state, m.devices, m.free, " ".join(m.partitions))
            for m in machines
        ),
    )


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s ago" if seconds >= 0 else "never"
