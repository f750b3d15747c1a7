"""`podwright`: the command for everything that concerns all commands together."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from podwright._version import __version__
from podwright.cli.shared._arguments import Parser, run

_EXAMPLES = """\
to complete words with the tab key:
  podwright completion install                   once, for the shell that you use

the other commands: vipu (partitions by hand), poprun (launch programs), vipu-server"""


#: The verbs that have a module of their own, with that module.
_MODULES = {
    "config": "about._config",
    "doctor": "serve._doctor",
    "inventory": "devices._inventory",
    "kubernetes": "kubernetes._verbs",
    "metrics": "serve._metrics",
    "node": "node._verbs",
    "proxy": "serve._proxy",
    "replay": "replay._verb",
    "slurm": "slurm._verbs",
    "top": "launch._top",
    "trace": "launch._trace",
    "web": "serve._web",
}


def build_parser(words: Sequence[str] = ()) -> Parser:
    """Return the parser of the whole command; if `words` begin with a verb, only that verb's.

    The smaller parser is built faster and reads the words in the same way.
    """
    parser = Parser(
        prog="podwright",
        description="Partitions of accelerators, and programs on them.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"podwright {__version__}")
    verbs = parser.add_subparsers(metavar="VERB", dest="verb", required=True, prog="podwright")
    verb = words[0] if words else ""
    if verb not in _MODULES:
        _add_own(verbs)
    for name in (verb,) if verb in _MODULES else _MODULES:
        module_of(name).add_parser(verbs, words[1:])
    return parser


def module_of(verb: str) -> Any:
    """Import and return the module of a verb. The modules of other verbs are not loaded."""
    return importlib.import_module(f"podwright.cli.{_MODULES[verb]}")


def _add_own(verbs: Any) -> None:
    from podwright.cli.about._commands import COMMANDS
    from podwright.cli.about._complete import KINDS
    from podwright.cli.about._completion import SHELLS

    summary = "print a script that completes words in a shell, or install it"
    words = verbs.add_parser("completion", help=summary)
    words.add_argument(
        "shell",
        metavar="SHELL",
        choices=(*SHELLS, "install"),
        help=f"{' or '.join(SHELLS)}; install: write it where your shell ($SHELL) looks for it",
    )
    words.add_argument(
        "--command",
        metavar="COMMAND",
        choices=tuple(COMMANDS),
        help="only of this command; of all by default",
    )
    complete_parser = verbs.add_parser(
        "complete"
    )  # only completion uses it, so the help leaves it out
    complete_parser.add_argument("kind", choices=KINDS)
    summary = "print a command's manual page: podwright man vipu | man -l -"
    manual = verbs.add_parser("man", help=summary)
    manual.add_argument("command", metavar="COMMAND", choices=COMMANDS, help=", ".join(COMMANDS))
    version = verbs.add_parser("version", help="print the version, and the server's")
    version.add_argument(
        "-o", "--output", metavar="FORMAT", choices=("text", "json"), default="text"
    )
    version.add_argument("--client", action="store_true", help="ask no server")
    added = verbs.add_parser("plugins", help="list what other packages add to Podwright")
    added.add_argument("--json", action="store_true", help="print JSON")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit code."""
    return run(lambda: _main(argv), prog="podwright")


def _main(argv: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    arguments = build_parser(words).parse_args(words)
    if arguments.verb in _MODULES:
        code: int = module_of(arguments.verb).main(arguments)
        return code
    if arguments.verb == "completion" and arguments.shell == "install":
        return _install_completion()
    if arguments.verb == "completion":
        from podwright.cli.about._commands import COMMANDS
        from podwright.cli.about._completion import completion

        commands = (arguments.command,) if arguments.command else tuple(COMMANDS)
        for command in commands:
            print(completion(arguments.shell, command))
    elif arguments.verb == "complete":
        from podwright.cli.about._complete import words as words_of

        print("\n".join(words_of(arguments.kind, os.environ)))
    elif arguments.verb == "man":
        from podwright.cli.about._manual import page

        print(page(arguments.command), end="")
    elif arguments.verb == "plugins":
        from podwright.cli.about._plugins import show

        print(show(as_json=arguments.json))
    else:
        from podwright.cli.about._build import show_versions

        print(
            show_versions(os.environ, as_json=arguments.output == "json", ask=not arguments.client)
        )
    return 0


def _install_completion() -> int:
    from podwright.cli.about._completion import SHELLS, install
    from podwright.errors import InvalidRequest

    shell = os.path.basename(os.environ.get("SHELL", ""))
    if shell not in SHELLS:
        raise InvalidRequest(
            f"$SHELL is {shell!r}, and completion is made for {' and '.join(SHELLS)}",
            would_work="SHELL=bash podwright completion install",
        )
    path = install(shell, os.environ)
    print(f"Written: {path}")
    if shell == "bash":
        print("New shells complete the commands, if the package bash-completion is installed.")
    else:
        folder = os.path.dirname(path)
        print(f"Put `fpath=({folder} $fpath)` above compinit in ~/.zshrc.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
