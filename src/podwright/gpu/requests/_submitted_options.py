"""Divides the options of a request into those that Slurm is asked about and those that are left
out, by Slurm's own list of options."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple, cast

from podwright.gpu.requests._request import SlurmRequest
from podwright.slurm.site.submit_options import OPTIONS, About
from podwright.slurm.twin import Submission

_ABOUT: dict[str, About] = {option.name: option.about for option in OPTIONS}
#: Why options are left out that decide what a job gets; a general reason stands for the others.
_REASONS = {
    "array": "one task of it is asked about",
    "clusters": "this cluster alone is asked",
    "cluster": "this cluster alone is asked",
    "dependency": "a twin does not have the jobs that it names",
    "immediate": "nobody waits here",
    "licenses": "a twin does not have the site's licences",
    "nodefile": "it names a file",
}
_UNKNOWN_THERE = "a twin does not have what it names"
_NOT_SLURMS = "no option of Slurm's; a plugin of the site may have it"
_NEEDS_STATE = "it needs the site's present state"


class LeftOut(NamedTuple):
    """An option that Slurm was not asked about. because: empty if the option does not decide what
    the job gets."""

    option: str
    because: str = ""


def unanswerable(request: SlurmRequest) -> str:
    """Return why nothing can be said of a request that is not for one job of its own; empty where
    it is."""
    names = [given.name for given in request.given if _ABOUT.get(given.name) == "step"]
    if not names:
        return ""
    if names[0] in ("het-group", "pack-group"):
        return "the parts of a heterogeneous job are not looked at"
    return f"--{names[0]} does not ask for a job of its own"


def command_of(request: SlurmRequest) -> Literal["sbatch", "salloc", "srun"]:
    """The command that the options are for."""
    return cast("Literal['sbatch', 'salloc', 'srun']", request.command)


def twin_submission(
    request: SlurmRequest, state: Collection[str] = ()
) -> tuple[Submission, tuple[LeftOut, ...]]:
    """What a twin is asked, and the options that it is not asked about. state: the names of
    options about the site's state that this twin can judge."""
    options, left_out = _divided(request, ("places",), state)
    return Submission(command_of(request), options), left_out


def site_options(request: SlurmRequest) -> tuple[tuple[str, ...], tuple[LeftOut, ...]]:
    """The options for the site's own commands, which know everything that options name, and those
    that are left out."""
    return _divided(request, ("places", "state", "site"))


def _divided(
    request: SlurmRequest, asked_about: tuple[About, ...], also: Collection[str] = ()
) -> tuple[tuple[str, ...], tuple[LeftOut, ...]]:
    options, left_out = [], []
    for name, value, _ in request.given:
        about = _ABOUT.get(name)
        if about in asked_about or name in also:
            options.append(f"--{name}={value}" if value else f"--{name}")
        elif about is None:
            left_out.append(LeftOut(name, _NOT_SLURMS))
        elif about == "run":
            left_out.append(LeftOut(name))
        elif about == "state":
            left_out.append(LeftOut(name, _NEEDS_STATE))
        else:
            left_out.append(LeftOut(name, _REASONS.get(name, _UNKNOWN_THERE)))
    return tuple(options), tuple(dict.fromkeys(left_out))


def left_out_texts(left_out: tuple[LeftOut, ...]) -> tuple[str, ...]:
    """Return what was left out, one phrase for each reason."""
    names_by_reason: dict[str, list[str]] = {}
    for option, because in left_out:
        reason = because or "not about what the job gets"
        names_by_reason.setdefault(reason, []).append(f"--{option}")
    return tuple(
        f"{', '.join(dict.fromkeys(names))} ({reason})" for reason, names in names_by_reason.items()
    )
