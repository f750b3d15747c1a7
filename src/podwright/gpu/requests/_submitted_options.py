"""Selects the options of a request that are submitted to Slurm as a question, by an allow-list."""

from __future__ import annotations

from typing import Literal, cast

from podwright.gpu.requests._request import SlurmRequest
from podwright.slurm.twin import Submission

#: Options that name files, hosts or accounts of the site, or do not decide where a job goes.
_INDIFFERENT_OPTIONS = frozenset(
    (
        *("output", "error", "input", "open-mode", "chdir", "export", "export-file", "wrap"),
        *("get-user-env", "mail-type", "mail-user", "wait", "test-only", "parsable", "quiet"),
        *("verbose", "clusters", "bb", "bbf", "bcast", "uid", "gid", "propagate", "signal"),
        *("array", "comment", "job-name", "profile", "acctg-freq", "ignore-pbs", "label"),
        *("unbuffered", "multi-prog", "prolog", "epilog", "task-prolog", "task-epilog", "mpi"),
        *("container", "container-id", "x11", "pty", "kill-on-bad-exit", "requeue", "no-requeue"),
        *("immediate", "no-shell", "bell", "no-bell", "kill-command", "job-id", "wckey"),
    )
)
#: Options about things that a twin lacks.
_OPTIONS_TWIN_LACKS = ("account", "qos", "licenses", "dependency")


def twin_submission(
    request: SlurmRequest, *, reservations: bool = False
) -> tuple[Submission, tuple[str, ...]]:
    """What a twin is asked, and the options of the request that it cannot judge. reservations:
    whether the twin has those of the site."""
    unjudged_options = (*_OPTIONS_TWIN_LACKS, *(() if reservations else ("reservation",)))
    left_out_names = tuple(
        given_option.name for given_option in request.given if given_option.name in unjudged_options
    )
    return Submission(
        command_of(request), deciding_options(request, excluded_options=unjudged_options)
    ), left_out_names


def command_of(request: SlurmRequest) -> Literal["sbatch", "salloc", "srun"]:
    """The command that the options are for."""
    return cast("Literal['sbatch', 'salloc', 'srun']", request.command)


def deciding_options(
    request: SlurmRequest, *, excluded_options: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """The options that decide whether and where the job starts, as words of a command line."""
    return tuple(
        f"--{given_option.name}={given_option.value}"
        if given_option.value
        else f"--{given_option.name}"
        for given_option in request.given
        if given_option.name not in _INDIFFERENT_OPTIONS
        and given_option.name not in excluded_options
    )
