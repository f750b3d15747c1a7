"""`podwright`: the command for everything that concerns all commands together."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from podwright._version import __version__
from podwright.cli.shared._arguments import Parser, run
from podwright.cli.shared._verb_definition import add_modules

_EXAMPLES = """\
To complete words with the tab key, type once: podwright completion install

Other commands: vipu (partitions by hand), poprun (launch programs), vipu-server"""


_READERS = {
    "for everybody": ("doctor", "config", "version", "completion", "man", "plugins"),
    "for users of GPUs and of Slurm": ("slurm", "inventory"),
    "for those who run programs on a pod": ("top", "web", "trace", "proxy"),
    "for administrators": ("kubernetes", "metrics", "node", "replay"),
}
#: Each verb, and the module whose VERBS has it.
_MODULES = {
    **dict.fromkeys(("completion", "complete", "man", "version", "plugins"), "about._verbs"),
    "config": "about._config",
    "doctor": "serve._doctor",
    "inventory": "devices._inventory",
    "kubernetes": "kubernetes._verbs",
    "metrics": "serve._metrics",
    "node": "node._verbs",
    "proxy": "serve._proxy",
    "replay": "replay._replay",
    "slurm": "slurm._verbs",
    "top": "launch._top",
    "trace": "launch._trace",
    "web": "serve._web",
}


def build_parser(words: Sequence[str] = ()) -> Parser:
    """Return the parser of the whole command; if `words` begin with a verb, only that verb's."""
    parser = Parser(
        prog="podwright",
        description="Partitions of accelerators, and programs on them.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"podwright {__version__}")
    parser.verb_groups = _READERS
    verbs = parser.add_subparsers(metavar="VERB", dest="verb", required=True, prog="podwright")
    add_modules(_MODULES, verbs, words)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit code."""
    return run(lambda: _main(argv), prog="podwright")


def _main(argv: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    arguments = build_parser(words).parse_args(words)
    code: int = arguments.run_verb(arguments)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
