"""`podwright slurm adopt`: makes a partition of the GPUs that Slurm gave a job."""

from __future__ import annotations

from podwright.cli.shared._print_result import show_result
from podwright.cli.shared._server_options import ServerNames, connect
from podwright.cli.shared._verb_definition import Verb
from podwright.ground import option_rows as opt


class _AdoptOptions(ServerNames):
    job = opt.optional_argument("its number (SLURM_JOB_ID)", "JOB", None)
    release = opt.flag("remove that partition")
    dry_run = opt.flag("print what Slurm gave it, and end")
    json = opt.JSON


def _run(arguments: _AdoptOptions) -> int:
    import os

    from podwright.errors import InvalidRequest, NotFound
    from podwright.gpu.configure import adopt, ask_grant, partition_name

    job = arguments.job or os.environ.get("SLURM_JOB_ID", "")
    if not job.isdecimal():
        raise InvalidRequest(
            f"{job!r} is not a job" if job else "no job is named", would_work="give its number"
        )
    if arguments.release:
        try:
            connect(arguments).client.remove_partition(partition_name(job), force=True)
        except NotFound:
            print(f"job {job}: there is no partition of its GPUs")
        else:
            print(f"job {job}: partition {partition_name(job)} is removed")
        return 0
    grant = ask_grant(job)
    if arguments.dry_run:
        summary = {**grant._asdict(), "partition": partition_name(job)}
        words = ", ".join(f"{node}:{index}" for node, index in grant.gpus)
        text = f"job {job} of {grant.user}: GPUs {words}"
        show_result(arguments.json, summary, lambda: text, indent=None)
        return 0
    adopted = adopt(connect(arguments).client, grant)
    places = [f"{d.machine}:{d.index}" for gcd in adopted.gcds for d in gcd]
    value = {"partition": adopted.name, "owner": adopted.owner, "gpus": places}
    text = f"job {job}: partition {adopted.name} has GPUs {', '.join(places)}"
    show_result(arguments.json, value, lambda: text, indent=None)
    return 0


VERBS = (
    Verb(
        "adopt",
        _AdoptOptions,
        _run,
        help="make a partition of the GPUs that Slurm gave a job",
        description="Makes a partition of the very GPUs that Slurm gave a job, so that fabric and "
        "guards are set up for it, or says why they cannot be had. For PrologSlurmctld, as root "
        "or a scheduler; with --release for EpilogSlurmctld. Asked again, it changes nothing.",
    ),
)
