"""`podwright`: what concerns all commands together. An umbrella with room for more."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from podwright._version import __version__
from podwright.cli._arguments import Parser, run

_EXAMPLES = """\
to complete words with the tab key:
  bash:  eval "$(podwright completion bash)"     in ~/.bashrc
  zsh:   eval "$(podwright completion zsh)"      in ~/.zshrc, after compinit

the other commands: vipu (partitions by hand), poprun (launch programs), vipu-server"""


#: The verbs that have a module of their own.
_MODULES = (
    "doctor",
    "inventory",
    "kubernetes",
    "metrics",
    "node",
    "proxy",
    "replay",
    "slurm",
    "top",
    "trace",
    "web",
)


def build_parser(words: Sequence[str] = ()) -> Parser:
    """The parser of the whole command; or of the verb alone that `words` begin with, which is
    built faster and reads them no differently."""
    parser = Parser(
        prog="podwright",
        description="Partitions of accelerators, and programs on them.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"podwright {__version__}")
    verbs = parser.add_subparsers(metavar="VERB", dest="verb", required=True, prog="podwright")
    one = words[0] if words else ""
    if one not in _MODULES:
        _add_own(verbs)
    for name in (one,) if one in _MODULES else _MODULES:
        module_of(f"_{name}").add_parser(verbs, words[1:])
    return parser


def module_of(name: str) -> Any:
    """A module of this package; what is not called for is not loaded."""
    return importlib.import_module(f"podwright.cli.{name}")


def _add_own(verbs: Any) -> None:
    from podwright.cli._commands import COMMANDS
    from podwright.cli._complete import KINDS
    from podwright.cli._completion import SHELLS

    words = verbs.add_parser("completion", help="print a script that completes words in a shell")
    words.add_argument("shell", metavar="SHELL", choices=SHELLS, help=" or ".join(SHELLS))
    words.add_argument(
        "--command",
        metavar="COMMAND",
        choices=tuple(COMMANDS),
        help="only of this command; of all by default",
    )
    asked = verbs.add_parser("complete")  # for completion alone, and so not in the help
    asked.add_argument("kind", choices=KINDS)
    summary = "print a command's manual page: podwright man vipu | man -l -"
    manual = verbs.add_parser("man", help=summary)
    manual.add_argument("command", metavar="COMMAND", choices=COMMANDS, help=", ".join(COMMANDS))
    verbs.add_parser("version", help="print the version")


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns the exit code."""
    return run(lambda: _main(argv), prog="podwright")


def _main(argv: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    arguments = build_parser(words).parse_args(words)
    if arguments.verb in _MODULES:
        code: int = module_of(f"_{arguments.verb}").main(arguments)
        return code
    if arguments.verb == "completion":
        from podwright.cli._commands import COMMANDS
        from podwright.cli._completion import completion

        commands = (arguments.command,) if arguments.command else tuple(COMMANDS)
        for command in commands:
            print(completion(arguments.shell, command))
    elif arguments.verb == "complete":
        from podwright.cli._complete import words as words_of

        print("\n".join(words_of(arguments.kind, os.environ)))
    elif arguments.verb == "man":
        from podwright.cli._manual import page

        print(page(arguments.command), end="")
    else:
        print(f"podwright {__version__}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
