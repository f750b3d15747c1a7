"""`podwright slurm configure` and `build`: configure Slurm for devices, and undo that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright.cli.shared._verb_definition import Verb
from podwright.cli.slurm import _configure_gpus
from podwright.cli.slurm._configure_gpus import SetupOptions
from podwright.ground import option_rows as opt
from podwright.guests.slurm.command._pod_configure_options import NATIVE, SITE_FOLDER

if TYPE_CHECKING:
    from pathlib import Path


class _BuildOptions(opt.OptionTable):
    into = opt.text("", "DIR", NATIVE)
    lint = opt.flag("only what `configure --gpus --lint` needs: a C compiler will do")
    include = opt.text("another Slurm's headers than those of the Slurm on PATH", "DIR")


def _configure(arguments: SetupOptions) -> int:
    if arguments.gpus is not None:
        return _configure_gpus.configure(arguments)
    from pathlib import Path

    from podwright.errors import InvalidRequest
    from podwright.guests.slurm import setup
    from podwright.guests.slurm.command._site_from_options import chosen_site, trusted_uids
    from podwright.slurm.site.file_changes import as_diff, carry_out, summary

    places = setup.NativePlaces(
        slurm_conf=Path(arguments.slurm_conf).absolute(),
        folder=Path(arguments.folder).absolute(),
        native=Path(arguments.native).absolute(),
    )
    advice = ""
    if arguments.undo:
        plan = setup.undo(places)
    else:
        site = chosen_site(arguments)
        trusted = trusted_uids(arguments.slurm_user, site)
        plan = setup.native(places, site, trusted_uids=trusted)
        advice = setup.advice(places.slurm_conf, site)
    absent = [] if arguments.undo else setup.missing(places)
    build = "podwright slurm build" + ("" if arguments.native == NATIVE else f" {places.native}")
    if absent and arguments.write:
        raise InvalidRequest(
            f"there is no {absent[0]}, and without it slurmctld does not start",
            operation="configure --write",
            would_work=f"`{build}` makes it",
        )
    print(as_diff(plan) if arguments.diff else summary(plan), end="")
    if advice:
        print(advice)
    if not (arguments.undo or arguments.write):
        lines = "" if arguments.diff else " --diff shows each line;"
        first = f" Before that: `{build}`." if absent else ""
        print(f"Nothing was changed.{lines} --write makes these changes.{first}")
        return 0
    carry_out(plan)
    if not arguments.undo:
        print(f"Written. Next:\n{_next_commands(places.folder)}", end="")
    else:
        print("Written. Restart slurmctld, and `scontrol reconfigure` for the nodes.")
        print("Before that end `podwright slurm serve`, and take back what it told Slurm:")
        print("`scontrol delete reservationname=podwright`.")
    return 0


def _next_commands(folder: Path) -> str:
    """Return what remains to be done after --write, a command a line."""
    site = "" if str(folder) == SITE_FOLDER else f" --site {folder / 'native.toml'}"
    return (
        "  systemctl restart slurmctld     then `scontrol reconfigure` for the nodes\n"
        f"  podwright slurm serve{site}     as a service: docs, slurm/admin\n"
        f"  podwright slurm check{site}     proves it by small jobs\n"
    )


def _build(arguments: _BuildOptions) -> int:
    from pathlib import Path

    if arguments.lint:
        from podwright.gpu import submission

        print(submission.build(Path(arguments.into)))
        return 0
    from podwright.guests.slurm.setup import build

    for path in build(Path(arguments.into), include=arguments.include):
        print(path)
    return 0


VERBS = (
    Verb(
        "configure",
        SetupOptions,
        _configure,
        help="set up an unmodified Slurm",
        description="Shows what setting Slurm up would change; --write does it, --undo takes it "
        "back. Scripts that the site has are kept and run as before.",
    ),
    Verb(
        "build",
        _BuildOptions,
        _build,
        help="compile the plugin and the hook",
        description="Compiles the SPANK plugin and the hook against this machine's own Slurm.",
    ),
)
