"""Questions to the service and its answers, as values that travel as JSON.

A question is checked here before Slurm sees it. Only options of an allow-list pass, each in the
form `--name=value` or `--name`, and none may name a file. Where the value of --nodelist or
--exclude has a slash, sbatch reads the names of hosts from a file of that name, and prints parts of
it in its error. A question never has a script. Slurm's own list of options says which ones decide
what a job gets; these pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final, Literal

from podwright.errors import InvalidRequest, Unavailable, WrongState
from podwright.slurm.site.submit_options import OPTIONS
from podwright.slurm.twin import Granted, Refused, Submission, Task, Waits

MOST_OPTIONS: Final = 64
LONGEST_OPTION: Final = 1024  # characters of one option with its value

#: Options by name. Those about the present state are left out where a twin does not have it.
_OPTIONS: Final = {option.name: option for option in OPTIONS if option.about in ("places", "state")}
#: Options whose values have slashes and never name a file: MM/DD/YY, gres/gpu.
_SLASH_OPTIONS: Final = frozenset(
    ("begin", "deadline", "gres", "ntasks-per-tres", "tres-bind", "tres-per-task")
)
_OPTION_PATTERN: Final = re.compile(r"--([a-z][a-z0-9-]*)(?:=(.*))?", re.DOTALL)


@dataclass(frozen=True)
class TwinQuestion:
    """A question.

    options: those of the command, without a script or program. tasks: whether to look at what each
    task of the job sees. as_uid: the user who makes the request, for root and SlurmUser only; None:
    the user who asks.
    """

    command: Literal["sbatch", "salloc", "srun"]
    options: tuple[str, ...]
    tasks: bool = False
    as_uid: int | None = None

    def submission(self) -> Submission:
        """Return what is submitted. Raises InvalidRequest for an option that no question may
        have.
        """
        if len(self.options) > MOST_OPTIONS:
            raise InvalidRequest(f"a question may have {MOST_OPTIONS} options")
        for option in self.options:
            _check_option(option)
        return Submission(self.command, self.options)


@dataclass(frozen=True)
class TwinAnswer:
    """An answer. Exactly one of granted, waits and refused is set.

    release: Slurm's (26.05.5). age: seconds since the state was copied that Slurm started from;
    None where its nodes were taken as idle, and idle_because then says why. accounts, groups:
    whether limits of accounts, and AllowGroups, apply. tasks: what each task sees; tasks_problem:
    why that is not known. step_problem: why the job's step does not start although the job does.
    left_out: the names of the question's options that this twin cannot judge.
    """

    release: str
    granted: Granted | None = None
    waits: Waits | None = None
    refused: Refused | None = None
    age: float | None = None
    idle_because: str = ""
    accounts: bool = False
    groups: bool = False
    tasks: tuple[Task, ...] = ()
    tasks_problem: str = ""
    step_problem: str = ""
    left_out: tuple[str, ...] = ()

    def with_tasks(self, see_tasks: Callable[[], tuple[Task, ...]]) -> TwinAnswer:
        """Return the answer with the job's tasks, or with the reason why they are not known.

        see_tasks: returns the tasks, or raises what Twin.tasks raises.
        """
        try:
            return replace(self, tasks=see_tasks())
        except WrongState as error:
            return replace(self, step_problem=error.problem)
        except Unavailable as error:
            return replace(self, tasks_problem=error.problem)

    @property
    def answer(self) -> Granted | Waits | Refused:
        """Slurm's answer. Raises InvalidRequest where there is none."""
        outcome = self.granted or self.waits or self.refused
        if outcome is None:
            raise InvalidRequest("the service's answer has no answer of Slurm's")
        return outcome


def without(
    submission: Submission, option_names: Collection[str]
) -> tuple[Submission, tuple[str, ...]]:
    """Return a submission without these options, and the names of those that it had."""
    named_options = [
        (option.removeprefix("--").partition("=")[0], option) for option in submission.options
    ]
    remaining = tuple(option for name, option in named_options if name not in option_names)
    return replace(submission, options=remaining), tuple(
        name for name, _ in named_options if name in option_names
    )


def takes_option(option: str) -> bool:
    """Return whether a question may have this option, `--name=value` or `--name`."""
    try:
        _check_option(option)
    except InvalidRequest:
        return False
    return True


def _check_option(option: str) -> None:
    option_match = _OPTION_PATTERN.fullmatch(option) if len(option) <= LONGEST_OPTION else None
    option_name = option_match[1] if option_match else option[:40]
    known_option = _OPTIONS.get(option_name)
    if not option_match or not known_option:
        raise InvalidRequest(
            f"{option_name!r} is not an option that the service asks Slurm about",
            would_work="Ask with options that decide which nodes, cores, memory and GPUs a job "
            "gets",
        )
    option_value = option_match[2]
    if option_value is None and known_option.argument == "r":
        raise InvalidRequest(f"--{option_name} needs a value", would_work=f"--{option_name}=VALUE")
    if option_value is None:
        return
    if not option_value.isprintable() or not option_value.isascii():
        raise InvalidRequest(f"the value of --{option_name} has letters that no such value has")
    if "/" in option_value and option_name not in _SLASH_OPTIONS:
        raise InvalidRequest(
            f"the value of --{option_name} may not have a slash: Slurm could read a file by that "
            "name",
            would_work="Name nodes, and no file",
        )
