"""`podwright slurm rehearse`: the effect of a change of Slurm's files on the site's jobs."""

from __future__ import annotations

from podwright.cli.shared._print_result import show_result
from podwright.cli.shared._terminal import ProgressLine
from podwright.cli.shared._verb_definition import Verb
from podwright.errors import InvalidRequest
from podwright.ground import option_rows as opt
from podwright.ground.option_rows import positive
from podwright.ground.plural import counted

_EXAMPLES = """\
examples:
  podwright slurm rehearse --slurm-conf new/slurm.conf
  podwright slurm rehearse --slurm-conf new/slurm.conf --scripts jobs/ --json
  podwright slurm rehearse --slurm /opt/slurm-26.05

gres.conf, topology.conf and topology.yaml are read beside each slurm.conf; what is missing beside
the new one is taken from today's. The nodes are taken as idle, and accounts, QOS, licenses and
dependencies are not looked at. Exit code 0: no job is answered differently; 1: some are; 3: Slurm
answers differently each time."""


class _RehearseOptions(opt.OptionTable):
    slurm_conf = opt.optional("the new slurm.conf", "FILE")
    today = opt.optional("today's slurm.conf (the one that this machine's Slurm has)", "FILE")
    slurm = opt.optional("the Slurm to which you want to upgrade", "PREFIX")
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


def _run(arguments: _RehearseOptions) -> int:
    from pathlib import Path

    from podwright.gpu.rehearse import (
        Rehearsal,
        as_json,
        as_text,
        find_sides,
        from_scripts,
        limited,
        recent,
        rehearse,
        twins_are_equal,
    )

    if not (arguments.slurm_conf or arguments.slurm):
        raise InvalidRequest(
            "no change is given", would_work="Name --slurm-conf FILE, or --slurm PREFIX, or both"
        )
    before, after = find_sides(
        slurm_conf=arguments.slurm_conf,
        today_conf=arguments.today,
        slurm_prefix=arguments.slurm,
        today_prefix=arguments.slurm_today,
        state_folder=arguments.state,
    )
    if arguments.scripts:
        submissions = from_scripts(Path(arguments.scripts))
    else:
        submissions = recent(arguments.days)
    chosen = list(limited(submissions, arguments.most))
    if not chosen and not submissions.skipped:
        raise InvalidRequest(
            "there is no submission to ask about",
            would_work="Name a folder of job scripts with --scripts, or more days with --days",
        )
    if arguments.dry_run:
        for submission, jobs in chosen:
            what = f"{submission.command} {' '.join(submission.options)}"
            print(f"{what}  ({counted(len(jobs), 'job')})")
        return 0
    rehearsal = Rehearsal([], [])
    if not twins_are_equal(before, after):
        progress = _Progress(len(chosen))
        try:
            rehearsal = rehearse(chosen, before, after, progress.show)
        finally:
            progress.clear()
    report = as_json((before, after), submissions, chosen, rehearsal)
    show_result(arguments.json, report, lambda: as_text(report))
    return {"yes": 0, "no": 1, "not known": 3}[report["judgement"]["says"]]


class _Progress(ProgressLine):
    """The number of answered submissions."""

    def __init__(self, total: int) -> None:
        super().__init__()
        self._total = total
        self.show(0)

    def show(self, count: int) -> None:
        """Show how many are answered."""
        self.write(f"Asked both twins about {count} of {self._total} submissions")


VERBS = (
    Verb(
        "rehearse",
        _RehearseOptions,
        _run,
        help="show what a change of slurm.conf or of Slurm's release would do to the jobs",
        description="Ask Slurm's own slurmctld, with today's files and with the new ones, about "
        "the submissions of the last days, and show which are answered differently.",
        epilog=_EXAMPLES,
    ),
)
