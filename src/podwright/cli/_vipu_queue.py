"""`vipu` and the waiting line: wait for a partition, see who waits, why, and what happened."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from podwright.api import Pod
from podwright.cli import _json
from podwright.cli._arguments import complain
from podwright.cli._tables import table
from podwright.client import Client
from podwright.errors import InvalidRequest, Unavailable
from podwright.wire import (
    CreateRequest,
    EventInfo,
    EventsRequest,
    Explanation,
    PartitionInfo,
    PartitionSpec,
    WaiterInfo,
    WaitReply,
    WaitRequest,
)

QUESTION = 20.0  #: seconds that one question may wait for its answer
OUTAGE = 25  #: times that a server may fail to answer, a second apart, before we give up


def wait_for(
    client: Client,
    spec: PartitionSpec,
    *,
    priority: int,
    duration: float,
) -> PartitionInfo:
    """A partition, made when it can be. Ctrl-C leaves the line; a server may restart meanwhile."""
    wanted = CreateRequest(spec=spec, duration=duration)
    reply = client.wait(WaitRequest(create=wanted, priority=priority))
    waiter = reply.waiter.id
    shown = ""
    try:
        while reply.partition is None:
            line = _standing(reply.waiter)
            if line != shown:
                complain(line)
                shown = line
            reply = _ask(client, WaitRequest(id=waiter, timeout=QUESTION))
    except KeyboardInterrupt:
        client.leave(waiter)
        complain(f"{waiter} has left the waiting line.")
        raise
    return reply.partition


def _ask(client: Client, request: WaitRequest) -> WaitReply:
    for left in reversed(range(OUTAGE)):
        try:
            return client.wait(request)
        except Unavailable:
            if not left:
                raise
            time.sleep(1.0)
    raise AssertionError("the last try returns or raises")


def _standing(info: WaiterInfo) -> str:
    if info.state != "WAITING":
        return f"{info.id}: starting."
    text = f"{info.id}: place {info.place} in the waiting line, for {info.needs}"
    return f"{text}; about {_span(info.estimate)} more." if info.estimate else f"{text}."


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def waiter_table(waiters: list[WaiterInfo]) -> str:
    """The waiting line for people. Our columns: V-IPU has no waiting line."""
    return table(
        ("Place", "Waiter", "Owner", "Priority", "State", "For", "Kept", "Estimate"),
        (
            (
                w.place or "",
                w.id,
                w.owner,
                w.priority,
                w.state,
                w.asked,
                w.reserved,
                _span(w.estimate) if w.estimate else "",
            )
            for w in waiters
        ),
    )


def list_waiters(arguments: argparse.Namespace, pod: Pod) -> int:
    """`vipu list waiters`."""
    found = pod.waiters()
    print(_json.text(found) if _wants_json(arguments) else waiter_table(found))
    return 0


def remove_waiter(arguments: argparse.Namespace, client: Client) -> int:
    """`vipu remove waiter ID`: leave the line."""
    client.leave(arguments.name)
    done = {"id": arguments.name}
    print(
        _json.text(done)
        if _wants_json(arguments)
        else f"remove waiter ({arguments.name}): success."
    )
    return 0


def explain(
    arguments: argparse.Namespace,
    client: Client,
    to_spec: Callable[[argparse.Namespace], PartitionSpec],
) -> int:
    """`vipu explain`: of a request, or of something that has a name. Exit code 75: not now."""
    if arguments.job:
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
        found = client.explain(spec=to_spec(arguments), duration=arguments.duration)
    else:
        found = client.explain(arguments.name or arguments.what)
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


def events(arguments: argparse.Namespace, client: Client) -> int:
    """`vipu events`: what happened, oldest first; with --follow what happens, until Ctrl-C."""
    since, follow, as_json = arguments.since, arguments.follow, _wants_json(arguments)
    while True:
        timeout = QUESTION if follow else 0.0
        found = client.list_events(EventsRequest(since=since, timeout=timeout))
        for event in found.events:
            print(_json.line(event) if as_json else event_line(event), flush=follow)
        more = bool(found.events) and found.last > since
        since = found.last
        if not follow and not more:
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
