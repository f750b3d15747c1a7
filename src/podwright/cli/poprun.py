"""The command poprun: starts a program's instances on a partition (PopRun guide, chapter 2)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from podwright.cli.shared._run_to_exit_code import TRACEBACK, leave, run

if TYPE_CHECKING:
    from podwright.launcher import Plan

#: The exit code for a failure that may pass (sysexits.h).
NOT_NOW = 75


#: Other commands' names of options, and poprun's own; the longer names first.
_OWN_OPTIONS = {
    "--api-host HOST:PORT or VIPU_CLI_API_HOST": (
        "--vipu-server-host HOST and --vipu-server-port PORT, or IPUOF_VIPU_API_HOST"
    ),
    "--api-host host1,host2": "--vipu-server-host host1,host2",
    "--api-host": "--vipu-server-host",
    " --tls-certs": " --vipu-tls-certs",
    "VIPU_CLI_API_HOST": "IPUOF_VIPU_API_HOST",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    code = run(
        lambda: _main(words),
        prog="poprun",
        describe=lambda error: f"POPRUN ERROR: {in_own_words(error.message)}",
    )
    return leave(code) if argv is None else code


def in_own_words(message: str) -> str:
    """Return a refusal with poprun's own option names in place of `vipu`'s."""
    for theirs, ours in _OWN_OPTIONS.items():
        message = message.replace(theirs, ours)
    return message


def _main(words: Sequence[str]) -> int:
    from podwright.api import plan_launch
    from podwright.launcher import help_text, launch, parse

    options = parse(words)
    environ = dict(os.environ)
    if options.debug:
        os.environ[TRACEBACK] = "1"
    if options.help:
        print(help_text())
        return 0
    if options.version or options.version_format:
        from podwright.launcher.options._versions import version_text

        print(version_text(options.version_format or "text"))
        return 0
    plan = plan_launch(options, environ)
    if options.export_config:
        from podwright.launcher import write_config

        written = write_config(options, options.export_config, options.overwrite_config)
        if written != options.export_config:
            print(f"POPRUN WARNING: the options are in {written}", file=sys.stderr)
    if options.dry_run:
        for note in plan.notes:
            print(f"POPRUN WARNING: {note}", file=sys.stderr)
        print(plan)
        return _ask(plan, environ) if options.dry_run == "server" else 0
    return launch(plan, environ).code


def _ask(plan: Plan, environ: Mapping[str, str]) -> int:
    """Print whether the server would grant the plan, and return the exit code."""
    from podwright.launcher import would_run

    good, lines = would_run(plan, environ)
    print(f"the server would {'grant it now' if good else 'not grant it now'}:")
    for line in lines:
        print(f"  {line}")
    return 0 if good else NOT_NOW


if __name__ == "__main__":
    sys.exit(main())
