"""The tables and cards of `vipu-admin`."""

from __future__ import annotations

import time

from podwright.api import MachineRow
from podwright.ground.tables import Table, card, table
from podwright.wire import (
    AgentInfo,
    ClusterTest,
    DiscoveredAgent,
    MoveTable,
    ShareInfo,
    UserInfo,
)


def agent_table(agents: list[AgentInfo]) -> Table:
    """Our own columns: V-IPU's are not known."""
    header = ("Agent", "Host", "Port", "Cluster", "State", "Devices", "Last Seen", "Reason")
    rows: list[tuple[object, ...]] = [
        (a.name, a.host, a.port, a.cluster, a.state, a.devices, _ago(a.last_seen), a.reason)
        for a in agents
    ]
    return Table(header, rows, "Agent", ("Port", "Host", "Cluster", "Devices"))


def moves_table(moves: MoveTable) -> str:
    """Return which launches move for whom, and what the server has moved so far."""
    rows = [
        (m.partition, m.owner, m.size, m.state, m.waiter or "(drained)", m.to, f"{m.seconds:g}s")
        for m in moves.moves
    ]
    heads = ("Partition", "Owner", "Size", "State", "For", "To", "Loses")
    title = "Launches are asked to move" if moves.allowed else "No launch is asked to move"
    far = f"{moves.done} moved since the server's start, {moves.failed} were asked and did not"
    words = f"{title}; {moves.movable} could be moved now; {far}."
    return f"{table(heads, rows)}\n{words}" if rows else words


def agent_card(agent: AgentInfo) -> str:
    """Return an agent as a card for people."""
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


def discovered_table(agents: list[DiscoveredAgent]) -> Table:
    """V-IPU's columns (V-IPU administrator guide, discovering agents)."""
    header = ("Host", "Port", "Network Interface", "Time Since Last Seen", "Agent Auto-Add ID")
    rows: list[tuple[object, ...]] = [
        (a.host, a.port, a.interface, f"{a.seen:.0f}s", a.name) for a in agents
    ]
    return Table(header, rows, "Agent Auto-Add ID", ("Network Interface", "Port"))


def test_table(test: ClusterTest) -> str:
    """Our columns."""
    words = {True: "OK", False: "FAILED", None: "UNKNOWN"}
    return table(
        ("Machine", "Check", "Result", "What is wrong"),
        ((r.machine or test.cluster, r.check, words[r.ok], r.problem) for r in test.results),
    )


def user_table(users: list[UserInfo]) -> Table:
    """Our columns."""
    rows: list[tuple[object, ...]] = [
        (u.name, u.role, "" if u.uid < 0 else u.uid, " ".join(u.allocations) or "all")
        for u in users
    ]
    return Table(("User", "Role", "Account", "Allocations"), rows, "User", ("Account",))


def user_card(user: UserInfo) -> str:
    """Return a user as a card for people."""
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


def machine_table(machines: list[MachineRow]) -> Table:
    """Our columns."""
    header = (
        "Machine",
        "Cluster",
        "Allocation",
        "State",
        "Devices",
        "Free",
        "Partitions",
        "Reason",
    )
    rows: list[tuple[object, ...]] = [
        (*row[:6], " ".join(row.partitions), row.reason) for row in machines
    ]
    return Table(header, rows, "Machine", ("Allocation", "Cluster", "Devices"))


def share_table(shares: list[ShareInfo]) -> Table:
    """Our columns. Active: whether the guest shares the pods now."""
    sources = {
        "STORED": "set by an administrator",
        "OPTION": "vipu-server --share",
        "DEFAULT": "nobody set it",
    }
    rows: list[tuple[object, ...]] = [
        (
            share.guest,
            f"{share.weight:g}",
            sources.get(share.source, share.source),
            "yes" if share.active else "no",
        )
        for share in shares
    ]
    return Table(("Guest", "Weight", "From", "Active"), rows, "Guest")


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s ago" if seconds >= 0 else "never"
