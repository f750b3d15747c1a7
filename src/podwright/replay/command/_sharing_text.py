"""The report on guests that share a pod, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from podwright.replay._advice import duration
from podwright.replay.command._report_text import item, left_out
from podwright.replay.sharing._compare_shared_split import GuestVerdict, SetupFigures, SharedFigures
from podwright.tables import printable, table


def sharing_lines(figures: SharedFigures) -> Iterator[str]:
    """Return the report's lines, who gains first."""
    for guest in figures["guests"]:
        yield (
            f"{printable(guest['guest'])}: {printable(guest['source'])}, {guest['jobs']} jobs of "
            f"{guest['users']} users in {guest['days']:.1f} days, {guest['device_hours']:,.0f} "
            f"device-hours, up to {guest['largest']} devices; weight {guest['weight']:g}, alone on "
            f"{guest['part']} devices"
        )
        yield from left_out(guest)
    yield (f"Together they ask for {figures['load']:.1%} of a pod of {figures['devices']} devices.")
    yield ""
    yield "Who gains by the common queue, beside a part of the pod for each"
    for verdict in figures["who_gains"]:
        yield from item(
            f"{printable(verdict['guest'])} {_verdict_phrase(verdict)}: {verdict['why']}"
        )
    yield ""
    yield from _setup_table_lines(figures["setups"])
    yield ""
    yield "How far to trust this"
    notes = [note for guest in figures["guests"] for note in guest["notes"]]
    for note in dict.fromkeys([*notes, *figures["simpler"]]):
        yield from item(note)


def _verdict_phrase(verdict: GuestVerdict) -> str:
    verdict_text = verdict["verdict"]
    return f"has {verdict_text}" if verdict_text.startswith("no ") else verdict_text


def _setup_table_lines(setups: Sequence[SetupFigures]) -> Iterator[str]:
    table_header = (
        "setup", "guest", "devices", "jobs", "refused", "used", "mean wait", "p50", "p95",
        "longest", "slowdown",
    )  # fmt: skip
    table_rows: list[tuple[object, ...]] = []
    for setup in setups:
        used_share = f"{setup['used']:.1%}"
        if not setup["guest"]:
            table_rows.append(
                (setup["setup"], "all", setup["devices"], "", "", used_share, "", "", "", "", "")
            )
            continue
        table_rows.append(
            (
                setup["setup"],
                printable(setup["guest"]),
                setup["devices"],
                setup["jobs"],
                sum(setup["refused"].values()),
                used_share,
                *(
                    duration(setup["wait"][statistic])
                    for statistic in ("mean", "p50", "p95", "longest")
                ),
                f"{setup['bounded_slowdown']['mean']:.1f}",
            )
        )
    yield table(table_header, table_rows)
    yield (
        "used: of the whole pod until the last submission. Waits and slowdowns: of the jobs that "
        "run in all setups."
    )
