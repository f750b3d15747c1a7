"""`podwright`: what concerns all commands together. An umbrella with room for more."""

from __future__ import annotations

from collections.abc import Sequence

from podwright import __version__
from podwright.cli import _doctor, _inventory, _proxy, _slurm
from podwright.cli._arguments import Parser, run
from podwright.cli._completion import COMMANDS, SHELLS, completion

_EXAMPLES = """\
to complete words with the tab key:
  bash:  eval "$(podwright completion bash)"     in ~/.bashrc
  zsh:   eval "$(podwright completion zsh)"      in ~/.zshrc, after compinit

the other commands: vipu (partitions by hand), poprun (launch programs), vipu-server"""


def build_parser() -> Parser:
    """The parser of the whole command."""
    parser = Parser(
        prog="podwright",
        description="Partitions of accelerators, and programs on them.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"podwright {__version__}")
    verbs = parser.add_subparsers(metavar="VERB", dest="verb", required=True)
    words = verbs.add_parser("completion", help="print a script that completes words in a shell")
    words.add_argument("shell", metavar="SHELL", choices=SHELLS, help=" or ".join(SHELLS))
    words.add_argument(
        "--command",
        metavar="COMMAND",
        choices=tuple(COMMANDS),
        help="only of this command; of all by default",
    )
    verbs.add_parser("version", help="print the version")
    _doctor.add_parser(verbs)
    _inventory.add_parser(verbs)
    _proxy.add_parser(verbs)
    _slurm.add_parsers(verbs)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns the exit code."""
    return run(lambda: _main(argv), prog="podwright")


def _main(argv: Sequence[str] | None) -> int:
    arguments = build_parser().parse_args(argv)
    if arguments.verb == "completion":
        commands = (arguments.command,) if arguments.command else tuple(COMMANDS)
        for command in commands:
            print(completion(arguments.shell, command))
    elif arguments.verb == "doctor":
        return _doctor.main(arguments)
    elif arguments.verb == "inventory":
        return _inventory.main(arguments)
    elif arguments.verb == "proxy":
        return _proxy.main(arguments)
    elif arguments.verb == "slurm":
        return _slurm.main(arguments)
    else:
        print(f"podwright {__version__}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
