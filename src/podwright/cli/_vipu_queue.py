"""`vipu` and the waiting line: see who waits, why, and what happened."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from podwright.api import Pod
from podwright.cli import _json
from podwright.cli._tables import table
from podwright.client import Client
from podwright.errors import InvalidRequest
from podwright.wire import EventInfo, Explanation, PartitionSpec, WaiterInfo


def waiter_table(waiters: list[WaiterInfo]) -> str:
    """The waiting line for people. Our columns: V-IPU has no waiting line."""
    from podwright.client import span

    return table(
        ("Place", "Waiter", "Owner", "Priority", "State", "For", "Kept", "Estimate", "Needs"),
        (
            (
                w.place or "",
                w.id,
                w.owner,
                w.priority,
                w.state,
                w.asked,
                w.reserved,
                span(w.estimate) if w.estimate else "",
                w.needs,
            )
            for w in waiters
        ),
    )


def list_waiters(arguments: argparse.Namespace, pod: Pod) -> int:
    """`vipu list waiters`."""
    found = pod.waiters()
    print(_json.text(found) if _wants_json(arguments) else waiter_table(found))
    return 0


def remove_waiter(arguments: argparse.Namespace, pod: Pod) -> int:
    """`vipu remove waiter ID`: leave the line."""
    pod.leave(arguments.name)
    done = {"id": arguments.name}
    print(
        _json.text(done)
        if _wants_json(arguments)
        else f"remove waiter ({arguments.name}): success."
    )
    return 0


def explain(
    arguments: argparse.Namespace,
    pod: Pod,
    to_spec: Callable[[argparse.Namespace], PartitionSpec],
) -> int:
    """`vipu explain`: of a request, or of something that has a name. Exit code 75: not now."""
    if arguments.job:
        with pod.client() as client:
            found = _of_job(arguments, client)
        print(_json.text(found) if _wants_json(arguments) else explanation(found))
        return 0 if found.starts_now else 75
    asked = arguments.what == "partition" and not arguments.name
    if not arguments.what or (asked and not (arguments.size or arguments.devices)):
        raise InvalidRequest(
            "explain what is not said",
            would_work="vipu explain partition --size N, vipu explain NAME, or --job ID",
        )
    if asked:
        found = pod.explain(to_spec(arguments), duration=arguments.duration)
    else:
        found = pod.explain(arguments.name or arguments.what)
    print(_json.text(found) if _wants_json(arguments) else explanation(found))
    return 75 if asked and not found.starts_now else 0


def _of_job(arguments: argparse.Namespace, client: Client) -> Explanation:
    import asyncio
    from pathlib import Path

    from podwright.cli._slurm_serve import FOLDER
    from podwright.slurm.pods.service import load
    from podwright.slurm.pods.waiting import explain_job
    from podwright.slurm.site.commands import SlurmCommands

    path = Path(arguments.site or f"{FOLDER}/native.toml")
    site = load(path) if arguments.site or path.exists() else None
    return asyncio.run(explain_job(SlurmCommands(), client, arguments.job, site))


def explanation(found: Explanation) -> str:
    """An explanation for people."""
    lines = [f"{found.asked}: {found.problem or 'as it stands'}."]
    lines += [f"  - {line}" for line in found.lines]
    if found.nearest is not None:
        lines.append(f"Would start now: {command(found.nearest)}")
    elif found.would_work:
        lines.append(f"{found.would_work[:1].upper()}{found.would_work[1:]}.")
    return "\n".join(lines)


def command(spec: PartitionSpec) -> str:
    """A request as one would type it."""
    words = ["vipu create partition", spec.name or "NAME"]
    for option, value in (
        ("--size", spec.size),
        ("--profile", spec.profile),
        ("--allocation", spec.allocation),
        ("--cluster", spec.cluster),
        ("--num-gcds", spec.num_gcds),
        ("--num-replicas", spec.num_replicas),
        ("--num-ilds", spec.num_ilds),
    ):
        if value:
            words.append(f"{option} {value}")
    if spec.devices:
        words.append("--devices " + ",".join(f"{d}:{o}" for d, o in spec.devices))
    if spec.reconfigurable:
        words.append("--reconfigurable")
    return " ".join(words)


def events(arguments: argparse.Namespace, pod: Pod) -> int:
    """`vipu events`: what happened, oldest first; with --follow what happens, until Ctrl-C."""
    follow, as_json = arguments.follow, _wants_json(arguments)
    for event in pod.events(since=arguments.since, follow=follow):
        print(_json.line(event) if as_json else event_line(event), flush=follow)
    return 0


def event_line(event: EventInfo) -> str:
    """An event for people."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at))
    text = f"{event.number} {when} {event.who} ({event.origin}) {event.what} {event.about}"
    outcome = event.outcome if event.outcome != "OK" else "ok"
    text = f"{text}: {outcome}"
    detail = f"{text}; {event.detail}" if event.detail else text
    return "".join(letter if letter.isprintable() else "?" for letter in detail)


def _wants_json(arguments: argparse.Namespace) -> bool:
    return getattr(arguments, "json", False)
