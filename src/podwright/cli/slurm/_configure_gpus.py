"""`podwright slurm configure --gpus` and `check --gpus`: the part for GPU clusters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from podwright.gpu.command._gpu_configure_options import GpuClusterOptions
from podwright.ground import option_rows as opt
from podwright.guests.slurm.command._pod_configure_options import SITE_FOLDER, PodSetupOptions

if TYPE_CHECKING:
    from pathlib import Path


class SetupOptions(GpuClusterOptions, PodSetupOptions):
    """The options of `configure`: those about a pod come first."""

    diff = opt.flag("print every line that would change")
    write = opt.flag("do it", rivals="group")
    undo = opt.flag("take it back", rivals="group")


_NOT_TRIED = "not tried: "


class CheckOptions(opt.OptionTable):
    """The options of `check`."""

    site = opt.text("", "FILE", f"{SITE_FOLDER}/native.toml")
    only = opt.text("test only the promises that contain this text", "TEXT")
    wait = opt.value(
        "how long a small job may take, 60; longer on a full cluster", "SECONDS", float, 60.0
    )
    user = opt.text("as whom root also runs a job", "NAME", "nobody")
    gpus = opt.optional("prove what configure --gpus FILE set up", "FILE")
    json = opt.JSON


def configure(arguments: SetupOptions) -> int:
    """Show, write or undo the configuration for GPUs. Returns the exit code."""
    from pathlib import Path

    from podwright.gpu import configure
    from podwright.gpu.command import _cluster_from_options as chosen
    from podwright.gpu.proof import proved
    from podwright.slurm.site.file_changes import as_diff, carry_out

    conf = Path(arguments.slurm_conf).absolute()
    notes: list[str] = []
    if arguments.lint or arguments.undo:
        done = _lint(arguments, conf)
        if arguments.lint and not arguments.gpus:
            return done
    if arguments.undo:
        plan = configure.take_back(conf)
    else:
        inventory = configure.read_inventory(_file(arguments.gpus))
        options = chosen.chosen_options(arguments, arguments.folder)
        version = chosen.chosen_version(arguments.slurm_version, arguments.slurm)
        plan, notes = configure.configure(conf, inventory, version, options)
    print(as_diff(plan), end="")
    for note in notes:
        _print_note(note)
    if not (arguments.undo or arguments.unproven) and not proved(
        conf,
        plan,
        inventory,
        version,
        slurm_path=arguments.slurm,
        report=_print_promise,
        note=_print_note,
    ):
        print(
            "Nothing was changed: the files do not hold what they are for. "
            "--unproven writes them all the same."
        )
        return 1
    if arguments.undo or arguments.write:
        carry_out(plan)
        print("Written. Restart slurmctld, then slurmd on the nodes: GPUs are counted at start.")
    else:
        print("Nothing was changed: --write does it.")
    return 0


def _print_note(text: str) -> None:
    import sys

    print(f"Note: {text}.", file=sys.stderr)


def _print_promise(text: str, problem: str) -> None:
    word, reason = ("NO ", f": {problem}") if problem else ("yes", "")
    if problem.startswith(_NOT_TRIED):
        word, reason = "-- ", f": {problem}"
    print(f"{word}  {text}{reason}", flush=True)


def _lint(arguments: SetupOptions, conf: Path) -> int:
    """Show, write or undo what lint at submission needs: job_submit.lua and its setting."""
    from pathlib import Path

    from podwright.gpu import submission
    from podwright.slurm.site.file_changes import as_diff, carry_out

    if arguments.undo or arguments.lint == "off":
        plan = submission.take_back(conf)
    else:
        library = Path(arguments.native).absolute() / submission.LIBRARY
        places = submission.Places(conf, library, Path(arguments.lint_socket))
        plan = submission.configure(places, arguments.lint or "")
    print(as_diff(plan), end="")
    if not (arguments.undo or arguments.write):
        print("Nothing was changed: --write does it.")
        return 0
    carry_out(plan)
    if plan.texts or plan.moves:
        print("Written. Restart slurmctld, and start `podwright slurm serve-lint` beside it.")
    return 0


def check(arguments: CheckOptions) -> int:
    """Print for each promise whether it is kept."""
    from podwright.gpu import configure

    inventory = configure.read_inventory(_file(arguments.gpus))
    promises = configure.check(inventory, configure.commands())
    return show_promises(((each.text, each.problem) for each in promises), arguments.json)


def show_promises(promises: Iterable[tuple[str, str]], as_json: bool) -> int:
    """Print for each promise whether it is kept, once that is known.

    An empty problem: it is. One that begins with `not tried: `: nobody knows (null in JSON). Exit
    code 1 where one is broken.
    """
    rows = []
    for promise, problem in promises:
        kept = None if problem.startswith(_NOT_TRIED) else not problem
        rows.append({"promise": promise, "kept": kept, "problem": problem})
        if not as_json:
            _print_promise(promise, problem)
    if as_json:
        import json

        print(json.dumps(rows, indent=2))
    return 1 if any(row["kept"] is False for row in rows) else 0


def _file(name: str | None) -> str:
    from podwright.errors import InvalidRequest

    if not name:
        raise InvalidRequest(
            "no inventory is named",
            operation="--gpus",
            would_work="--gpus FILE; only --undo needs none",
        )
    return name
