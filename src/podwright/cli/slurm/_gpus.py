"""`podwright slurm configure --gpus` and `check --gpus`: the part for GPU clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from podwright.cli.shared import _option_table as opt
from podwright.cli.slurm._configure_options import ConfigureOptions
from podwright.cli.slurm._serve import FOLDER

if TYPE_CHECKING:
    from pathlib import Path


class CheckOptions(opt.OptionTable):
    """The options of `check`."""

    site = opt.text("", "FILE", f"{FOLDER}/native.toml")
    only = opt.text("test only the promises that contain this text", "TEXT")
    wait = opt.value(
        "how long a small job may take, 60; longer on a full cluster", "SECONDS", float, 60.0
    )
    gpus = opt.optional("prove what configure --gpus FILE set up", "FILE")
    json = opt.JSON


def configure(arguments: ConfigureOptions) -> int:
    """Show, write or undo the configuration for GPUs. Returns the exit code."""
    import sys
    from pathlib import Path

    from podwright.gpu import configure
    from podwright.slurm.site.changes import as_diff, carry_out

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
        options = configure.ConfigureOptions(
            arguments.autodetect,
            arguments.topology,
            arguments.confine,
            arguments.imex,
            _program(arguments.health_check),
            _gate(arguments),
            _sampling(arguments),
            _summary(arguments),
        )
        version = _version(arguments)
        plan, notes = configure.configure(conf, inventory, version, options)
    print(as_diff(plan), end="")
    for note in notes:
        print(f"Note: {note}.", file=sys.stderr)
    if not (arguments.undo or arguments.unproven) and not _proved(
        arguments, conf, plan, inventory, version
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


def _proved(
    arguments: ConfigureOptions, conf: Path, plan: Any, inventory: Any, version: tuple[int, int]
) -> bool:
    """Check with Slurm's own slurmctld that the planned files have their intended effect.

    Prints each result. Returns True when the files have it, or when no slurmctld can be asked,
    which a note reports.
    """
    import sys

    from podwright.errors import Unavailable
    from podwright.gpu.proof import planned_files, prove
    from podwright.slurm.twin import Twin, find_slurm

    slurm = find_slurm(version, path=arguments.slurm)
    if slurm is None:
        print(
            f"Note: not proved: there is no slurmctld {version[0]}.{version[1]:02} here to start "
            "with these files (Debian: slurmctld; SchedMD, EPEL: slurm-slurmctld; or --slurm).",
            file=sys.stderr,
        )
        return True
    started = f"slurmctld {slurm.release} starts with these files"
    good = True
    try:
        with Twin(planned_files(conf, plan), slurm) as twin:
            _print_promise(started, "")
            for proof in prove(twin, inventory, version):
                _print_promise(proof.text, proof.problem)
                good = good and not proof.problem
    except Unavailable as error:
        if "namespaces" in error.problem:
            print(f"Note: not proved: {error.problem}.", file=sys.stderr)
            return True
        _print_promise(started, error.problem)
        return False
    return good


def _print_promise(text: str, problem: str) -> None:
    word, reason = ("NO ", f": {problem}") if problem else ("yes", "")
    print(f"{word}  {text}{reason}", flush=True)


def _lint(arguments: ConfigureOptions, conf: Path) -> int:
    """Show, write or undo what lint at submission needs: job_submit.lua and its setting."""
    from pathlib import Path

    from podwright.gpu import submission
    from podwright.slurm.site.changes import as_diff, carry_out

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
    problems = []
    for promise in configure.check(inventory, configure.commands()):
        problems.append(promise)
        if not arguments.json:
            _print_promise(promise.text, promise.problem)
    if arguments.json:
        import json

        rows = [{"promise": p.text, "kept": not p.problem, "problem": p.problem} for p in problems]
        print(json.dumps(rows, indent=2))
    return 1 if any(promise.problem for promise in problems) else 0


def _file(name: str | None) -> str:
    from podwright.errors import InvalidRequest

    if not name:
        raise InvalidRequest(
            "no inventory is named",
            operation="--gpus",
            would_work="--gpus FILE; only --undo needs none",
        )
    return name


def _program(name: str) -> str:
    from podwright.errors import InvalidRequest

    if name and (not name.startswith("/") or any(letter in name for letter in " \t\n#=")):
        raise InvalidRequest(
            f"{name!r} is no path that slurm.conf can hold",
            operation="--health-check",
            would_work="an absolute path without blanks, such as /usr/local/sbin/health",
        )
    return name


def _gate(arguments: ConfigureOptions) -> Any:
    """Return the settings of our own health check, if it is wanted. Raises InvalidRequest."""
    from pathlib import Path

    from podwright.errors import InvalidRequest
    from podwright.gpu import configure

    if not arguments.health:
        return None
    if arguments.health_check:
        raise InvalidRequest(
            "both would be Slurm's HealthCheckProgram",
            operation="--health with --health-check",
            would_work="--health, and the other program as a script in node-health.toml",
        )
    script = Path(arguments.folder).absolute() / "node-health"
    return configure.GateScript(_program(str(script)), _on_nodes(arguments), arguments.health)


def _sampling(arguments: ConfigureOptions) -> Any:
    """Return the settings for samples of jobs' GPUs, if they are wanted. Raises InvalidRequest."""
    from pathlib import Path

    from podwright.gpu import configure

    if not arguments.efficiency:
        return None
    script = Path(arguments.folder).absolute() / "task-prolog"
    return configure.Sampling(_program(str(script)), _on_nodes(arguments), arguments.efficiency)


def _summary(arguments: ConfigureOptions) -> Any:
    """Return the settings for summaries at jobs' ends, if they are wanted. Raises
    InvalidRequest.
    """
    from pathlib import Path

    from podwright.gpu import configure

    if not arguments.summary:
        return None
    script = _program(str(Path(arguments.folder).absolute() / "job-epilog"))
    folder = _program(arguments.summary_folder)
    return configure.Summary(script, _on_nodes(arguments), arguments.summary, folder)


def _on_nodes(arguments: ConfigureOptions) -> str:
    """Return the path of podwright on the nodes."""
    import shutil

    return _program(arguments.node_podwright or shutil.which("podwright") or "/usr/bin/podwright")


def _version(arguments: ConfigureOptions) -> tuple[int, int]:
    import shutil

    from podwright.errors import InvalidRequest
    from podwright.slurm.site.ask import ask_slurm
    from podwright.slurm.site.releases import parse_version

    version = arguments.slurm_version or ask_slurm(["scontrol", "--version"])
    if not version:
        # On a node without files of its own, scontrol asks slurmctld for them before it prints
        # anything.
        scontrol = shutil.which("scontrol")
        raise InvalidRequest(
            "scontrol does not say Slurm's version; slurmctld may be down"
            if scontrol
            else "there is no scontrol on PATH to ask for Slurm's version",
            operation="--gpus",
            would_work="say it: --slurm-version=24.11",
        )
    return parse_version(version)
