"""The verbs of `podwright` about the commands themselves: completion, manual, version, plug-ins."""

from __future__ import annotations

import os

from podwright.cli.about._command_parsers import COMMANDS, page
from podwright.cli.about._complete import KINDS
from podwright.cli.about._completion import SHELLS
from podwright.cli.shared._noun_grammar import LocalListOptions
from podwright.cli.shared._verb_definition import Verb
from podwright.ground import option_rows as opt


class _CompletionOptions(opt.OptionTable):
    shell = opt.argument(
        f"{' or '.join(SHELLS)}; install: write it where your shell ($SHELL) looks for it",
        "SHELL",
        (*SHELLS, "install"),
    )
    command = opt.choice(
        "only of this command; of all by default", tuple(COMMANDS), None, "COMMAND"
    )


class _WordsOptions(opt.OptionTable):
    kind = opt.argument("", "KIND", KINDS)


class _ManualOptions(opt.OptionTable):
    command = opt.argument(", ".join(COMMANDS), "COMMAND", COMMANDS)


class _VersionOptions(opt.OptionTable):
    output = opt.choice("", ("text", "json"), "text", "FORMAT", name="-o --output")
    client = opt.flag("ask no server")


def _completion(arguments: _CompletionOptions) -> int:
    from podwright.cli.about._completion import completion

    if arguments.shell == "install":
        return _install_completion()
    for command in (arguments.command,) if arguments.command else COMMANDS:
        print(completion(arguments.shell, command))
    return 0


def _install_completion() -> int:
    from podwright.cli.about._completion import install
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


def _words(arguments: _WordsOptions) -> int:
    from podwright.cli.about._complete import words

    print("\n".join(words(arguments.kind, os.environ)))
    return 0


def _manual(arguments: _ManualOptions) -> int:
    print(page(arguments.command), end="")
    return 0


def _version(arguments: _VersionOptions) -> int:
    from podwright.cli.about._version import show_versions

    as_json = arguments.output == "json"
    print(show_versions(os.environ, as_json=as_json, ask=not arguments.client))
    return 0


def _plugins(arguments: LocalListOptions) -> int:
    from podwright.cli.about._plugins import show_plugins

    show_plugins(arguments)
    return 0


VERBS = (
    Verb(
        "completion",
        _CompletionOptions,
        _completion,
        "print a script that completes words in a shell, or install it",
    ),
    Verb("complete", _WordsOptions, _words),  # only completion uses it
    Verb(
        "man",
        _ManualOptions,
        _manual,
        "print a command's manual page: podwright man vipu | man -l -",
    ),
    Verb("version", _VersionOptions, _version, "print the version, and the server's"),
    Verb("plugins", LocalListOptions, _plugins, "list what other packages add to Podwright"),
)
