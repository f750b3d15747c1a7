"""`vipu` and the queue: the waiters, the reasons why they wait, and past events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from podwright.api import Pod
from podwright.cli.partitions._create_request import partition_spec
from podwright.cli.partitions._options import EventOptions, ExplainOptions
from podwright.cli.shared import _json
from podwright.cli.shared._listing import ListView, yaml_text
from podwright.cli.shared._noun_grammar import ListOptions, NamedOptions
from podwright.cli.shared._print_replies import show, success
from podwright.client import Client
from podwright.errors import InvalidRequest, as_sentence
from podwright.ground.plural import span
from podwright.ground.tables import Table, table_of
from podwright.wire import EventInfo, Explanation, JobInfo, PartitionSpec, WaiterInfo


def waiter_table(waiters: list[WaiterInfo]) -> Table:
    """Return the queue as a table for people. The columns are our own: V-IPU has no queue."""
    return table_of(
        waiters,
        {
            "Place": lambda waiter: waiter.place or "",
            "Waiter": lambda waiter: waiter.id,
            "Owner": lambda waiter: waiter.owner,
            "Priority": lambda waiter: waiter.priority,
            "State": lambda waiter: waiter.state,
            "For": lambda waiter: waiter.asked,
            "Kept": lambda waiter: waiter.reserved,
            "Estimate": lambda waiter: span(waiter.estimate) if waiter.estimate else "",
            "Needs": lambda waiter: waiter.needs,
        },
        "Waiter",
        ("Priority", "Kept", "State", "Owner"),
    )


def list_waiters(_: ListOptions, pod: Pod) -> ListView:
    """`vipu list waiters`."""
    waiters = pod.waiters()
    return ListView(waiters, waiter_table(waiters))


class QueueRow(NamedTuple):
    """A request that waits. guest: the scheduler in whose queue it is, or `people` for the server's
    own. place: in that queue. devices: what it requests, in words. reserved: the number of devices
    that are kept for it. estimate: seconds until it can start; 0: not known. since: seconds since
    1970.
    """

    guest: str
    place: int
    id: str
    owner: str
    devices: str
    reserved: int
    estimate: float
    since: float
    needs: str


def queue_rows(waiters: Iterable[WaiterInfo], jobs: Iterable[JobInfo]) -> list[QueueRow]:
    """Return all who wait: the server's own queue first, then scheduler by scheduler."""
    people: list[tuple[str, WaiterInfo | JobInfo]] = [
        ("people", entry) for entry in waiters if entry.state == "WAITING"
    ]
    guests = [(entry.scheduler, entry) for entry in jobs]
    return [
        QueueRow(
            guest=guest,
            place=entry.place,
            id=entry.id,
            owner=entry.owner,
            devices=entry.asked,
            reserved=entry.reserved,
            estimate=entry.estimate,
            since=entry.since,
            needs=entry.needs,
        )
        for guest, entry in (*people, *guests)
    ]


def list_queue(_: ListOptions, pod: Pod) -> ListView:
    """`vipu list queue`: all who wait for devices, people and schedulers' jobs."""
    rows = queue_rows(pod.waiters(), pod.jobs())
    columns: dict[str, Callable[[QueueRow], object]] = {
        "Guest": lambda row: row.guest,
        "Place": lambda row: row.place,
        "Id": lambda row: row.id,
        "Owner": lambda row: row.owner,
        "For": lambda row: row.devices,
        "Kept": lambda row: row.reserved or "",
        "Estimate": lambda row: span(row.estimate) if row.estimate else "",
        "Needs": lambda row: row.needs,
    }
    table = table_of(rows, columns, "Id", ("Estimate", "Kept", "Owner"))
    return ListView([row._asdict() for row in rows], table)


def remove_waiter(arguments: NamedOptions, pod: Pod) -> int:
    """`vipu remove waiter ID`: leave the queue."""
    pod.leave(arguments.name)
    return success(f"remove waiter ({arguments.name})", {"id": arguments.name}, arguments)


def explain(arguments: ExplainOptions, pod: Pod) -> int:
    """`vipu explain`: explains a request, or something by its name. Exit code 75: not now."""
    if arguments.job:
        with pod.client() as client:
            explanation_of_job = _of_job(arguments, client)
        show(arguments, explanation_of_job, lambda: explanation(explanation_of_job))
        return 0 if explanation_of_job.starts_now else 75
    is_request = arguments.subject == "partition" and not arguments.name
    if not arguments.subject or (is_request and not (arguments.size or arguments.devices)):
        raise InvalidRequest(
            "the command does not say what to explain",
            would_work="vipu explain partition --size N, vipu explain NAME, or --job ID",
        )
    if is_request:
        explanation_of_job = pod.explain(
            partition_spec(arguments, arguments.name), duration=arguments.duration
        )
    else:
        explanation_of_job = pod.explain(arguments.name or arguments.subject)
    show(arguments, explanation_of_job, lambda: explanation(explanation_of_job))
    return 75 if is_request and not explanation_of_job.starts_now else 0


def _of_job(arguments: ExplainOptions, client: Client) -> Explanation:
    import asyncio
    from pathlib import Path

    from podwright.guests.slurm.command._pod_configure_options import SITE_FOLDER
    from podwright.guests.slurm.service import load
    from podwright.guests.slurm.waiting import explain_job
    from podwright.slurm.site.commands import SlurmCommands

    path = Path(arguments.site or f"{SITE_FOLDER}/native.toml")
    site = load(path) if arguments.site or path.exists() else None
    return asyncio.run(explain_job(SlurmCommands(), client, arguments.job, site))


def explanation(explained: Explanation) -> str:
    """Return an explanation for people."""
    lines = [f"{explained.asked}: {explained.problem or 'as it stands'}."]
    lines += [f"  - {line}" for line in explained.lines]
    if explained.nearest is not None:
        lines.append(f"Would start now: {command(explained.nearest)}")
    elif explained.would_work:
        lines.append(as_sentence(explained.would_work))
    return "\n".join(lines)


def command(spec: PartitionSpec) -> str:
    """Return a request as the command that a user would type."""
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
        words.append("--devices " + ",".join(f"{d}:{device}" for d, device in spec.devices))
    if spec.reconfigurable:
        words.append("--reconfigurable")
    return " ".join(words)


def events(arguments: EventOptions, pod: Pod) -> int:
    """`vipu events`: prints events, oldest first; with --follow also new ones, until Ctrl-C."""
    formats: dict[str, Callable[[EventInfo], str]] = {
        "json": _json.line,
        "yaml": lambda event: yaml_text([event]),
        "name": lambda event: str(event.number),
    }
    form = formats.get("json" if arguments.json else arguments.output, event_line)
    for event in pod.events(since=arguments.since, follow=arguments.follow):
        print(form(event), flush=arguments.follow)
    return 0


def event_line(event: EventInfo) -> str:
    """Return an event as a line for people."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at))
    text = f"{event.number} {when} {event.who} ({event.origin}) {event.what} {event.about}"
    outcome = event.outcome if event.outcome != "OK" else "ok"
    text = f"{text}: {outcome}"
    detail = f"{text}; {event.detail}" if event.detail else text
    return "".join(letter if letter.isprintable() else "?" for letter in detail)
