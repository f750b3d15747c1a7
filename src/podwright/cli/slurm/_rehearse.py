"""`podwright slurm rehearse`: the effect of a change of Slurm's files on the site's jobs."""

from __future__ import annotations

import sys
from typing import Any

from podwright.cli.shared import _option_table as opt
from podwright.cli.shared._arguments import positive
from podwright.cli.shared._verb import Verb
from podwright.errors import InvalidRequest, Unavailable

_EXAMPLES = """\
examples:
  podwright slurm rehearse --slurm-conf new/slurm.conf
  podwright slurm rehearse --slurm-conf new/slurm.conf --scripts jobs/ --json
  podwright slurm rehearse --slurm /opt/slurm-26.05

gres.conf, topology.conf and topology.yaml are read beside each slurm.conf; what is missing beside
the new one is taken from today's. The nodes are taken as idle, and accounts, QOS, licenses and
dependencies are not looked at. Exit code 0: no job is answered differently; 1: some are."""


class RehearseOptions(opt.OptionTable):
    """The options of `rehearse`."""

    slurm_conf = opt.optional("the new slurm.conf", "FILE")
    today = opt.optional("today's slurm.conf (the one that this machine's Slurm has)", "FILE")
    slurm = opt.optional("the Slurm of tomorrow: rehearse an upgrade to it", "PREFIX")
    slurm_today = opt.optional("the Slurm of today (the one of this machine)", "PREFIX")
    scripts = opt.optional("the job scripts to ask about", "FOLDER", rivals="source")
    days = opt.value("submissions of so many days (7)", "N", positive, 7, rivals="source")
    most = opt.value(
        "ask about at most so many different submissions, the most frequent ones (300)",
        "N",
        positive,
        300,
    )
    state = opt.optional(
        "rehearse on the cluster as it stands in this copy of StateSaveLocation, not on idle "
        "nodes, and show which jobs would start later (root and SlurmUser may read the original)",
        "FOLDER",
    )
    dry_run = opt.flag("show what would be asked, and end")
    json = opt.JSON


def _run(arguments: RehearseOptions) -> int:
    from podwright.gpu.rehearse import differences, limited, rehearse

    if not (arguments.slurm_conf or arguments.slurm):
        raise InvalidRequest(
            "no change is given", would_work="Name --slurm-conf FILE, or --slurm PREFIX, or both"
        )
    before, after = _sides(arguments)
    submissions = _submissions(arguments)
    chosen = list(limited(submissions, arguments.most))
    if not chosen and not submissions.skipped:
        raise InvalidRequest(
            "there is no submission to ask about",
            would_work="Name a folder of job scripts with --scripts, or more days with --days",
        )
    if arguments.dry_run:
        for submission, jobs in chosen:
            print(f"{submission.command} {' '.join(submission.options)}  ({len(jobs)} jobs)")
        return 0
    progress = _Progress(len(chosen))
    try:
        cases = rehearse(chosen, before, after, progress.show)
    finally:
        progress.clear()
    changed = differences(cases)
    beyond = submissions.count - sum(len(jobs) for _, jobs in chosen)
    body = {
        "before": f"Slurm {before.slurm.release}, {before.name}",
        "after": f"Slurm {after.slurm.release}, {after.name}",
        "submissions": len(chosen),
        "jobs": sum(len(jobs) for _, jobs in chosen),
        "nodes": "as the cluster stands" if arguments.state else "on idle nodes",
        "beyond_most": beyond,
        "not_looked_at": submissions.skipped,
        "options_not_looked_at": submissions.left_out,
        "cautions": _cautions(before, after),
        "differences": [_row(difference) for difference in changed],
    }
    if arguments.json:
        import json

        print(json.dumps(body, indent=2))
    else:
        _print(body)
    return 1 if changed else 0


def _sides(arguments: RehearseOptions) -> tuple[Any, Any]:
    """Return today's and tomorrow's side. Raises Unavailable when a Slurm is not on this
    machine.
    """
    from pathlib import Path

    from podwright.gpu.rehearse import Side, read_site_files
    from podwright.slurm.twin import find_slurm, present_copied

    today = Path(arguments.today or _conf_of_this_machine())
    files = read_site_files(today)
    slurm = find_slurm(path=arguments.slurm_today or "")
    if slurm is None:
        raise Unavailable(
            f"there is no slurmctld {_place(arguments.slurm_today)}, so Slurm cannot be asked",
            would_work="Install slurmctld (Debian: slurmctld; SchedMD, EPEL: slurm-slurmctld), "
            "or name its prefix with --slurm-today",
        )
    new_slurm = find_slurm(path=arguments.slurm) if arguments.slurm else slurm
    if new_slurm is None:
        raise Unavailable(
            f"there is no slurmctld {_place(arguments.slurm)}",
            would_work="--slurm names a prefix with sbin/slurmctld, or an unpacked system",
        )
    new, new_files = today, files
    if arguments.slurm_conf:
        new = Path(arguments.slurm_conf)
        new_files = read_site_files(new, files)
    present = present_copied(Path(arguments.state)) if arguments.state else None
    return (
        Side(str(today), files, slurm, present),
        Side(str(new), new_files, new_slurm, present),
    )


def _place(prefix: str | None) -> str:
    return f"below {prefix}" if prefix else "on this machine"


def _conf_of_this_machine() -> str:
    import os
    import re

    from podwright.slurm.site.ask import ask_slurm

    if os.environ.get("SLURM_CONF"):
        return os.environ["SLURM_CONF"]
    match = re.search(r"^SLURM_CONF\s*=\s*(/\S+)", ask_slurm(["scontrol", "show", "config"]), re.M)
    return match[1] if match else "/etc/slurm/slurm.conf"


def _submissions(arguments: RehearseOptions) -> Any:
    from pathlib import Path

    from podwright.gpu.rehearse import LIST_JOBS, from_sacct, from_scripts

    if arguments.scripts:
        return from_scripts(Path(arguments.scripts))
    import subprocess

    words = [*LIST_JOBS, "-S", f"now-{arguments.days}days"]
    reason = "sacct gave no answer within two minutes"
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=120, check=False
        )
        if done.returncode == 0:
            return from_sacct(done.stdout)
        reason = f"sacct failed: {done.stderr.strip()[-300:]}"
    except OSError as error:
        reason = f"sacct cannot be started: {error.strerror}"
    except subprocess.TimeoutExpired:
        pass
    raise Unavailable(
        f"the submissions are not known: {reason}",
        would_work="Name a folder of job scripts with --scripts, or fewer days with --days",
    )


def _cautions(before: Any, after: Any) -> list[str]:
    from podwright.slurm.site.releases import release_of

    text = f"{before.files.slurm_conf}\n{after.files.slurm_conf}".lower()
    if "corespec" not in text and "cpuspeclist" not in text:
        return []
    return [
        f"a twin of Slurm {side.slurm.release} may hand out cores that CoreSpecCount reserves, "
        "so that CPUs and nodes can differ from the cluster's"
        for side in (before, after)
        if not release_of(side.slurm.version).twin_keeps_reserved_cores
    ][:1]


def _row(difference: Any) -> dict[str, Any]:
    return {
        "kind": difference.kind,
        "jobs": list(difference.jobs),
        "options": difference.options,
        "before": difference.before,
        "after": difference.after,
        "reason": difference.reason,
    }


def _print(body: dict[str, Any]) -> None:
    from podwright.cli.shared._tables import Table

    print(f"Before: {body['before']}\nAfter:  {body['after']}")
    rows = body["differences"]
    if rows:
        cells: list[tuple[object, ...]] = [
            (row["kind"], _jobs(row["jobs"]), row["options"], row["before"], row["after"])
            for row in rows
        ]
        print(Table(("Differs", "Jobs", "Submission", "Before", "After"), cells, name="Jobs"))
    jobs = {job for row in rows for job in row["jobs"]}
    print(
        f"{len(jobs)} of {body['jobs']} jobs ({body['submissions']} different submissions) "
        f"are answered differently, {body['nodes']}."
    )
    if body["beyond_most"]:
        print(f"Not asked about: {body['beyond_most']} further jobs; --most asks about more.")
    for reason, names in body["not_looked_at"].items():
        print(f"Not looked at: {_jobs(names)}, because {reason}.")
    for name, names in body["options_not_looked_at"].items():
        print(f"Note: --{name} of {_jobs(names)} is not looked at.")
    for caution in body["cautions"]:
        print(f"Note: {caution}.")


def _jobs(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


class _Progress:
    """The number of answered submissions, on a terminal's line."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._shown = sys.stderr.isatty()
        self.show(0)

    def show(self, count: int) -> None:
        """Show how many are answered."""
        if self._shown:
            text = f"\rAsked both twins about {count} of {self._total} submissions"
            print(text, end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Remove the line."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


VERBS = (
    Verb(
        "rehearse",
        RehearseOptions,
        _run,
        help="show what a change of slurm.conf or of Slurm's release would do to the jobs",
        description="Ask Slurm's own slurmctld, with today's files and with the new ones, about "
        "the submissions of the last days, and show which are answered differently.",
        epilog=_EXAMPLES,
    ),
)
