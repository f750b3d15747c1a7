"""Verbs as values: their words, their options, and the function that carries them out."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from podwright.cli.shared._arguments import Parser, PassingParser
from podwright.ground.option_rows import OptionTable

if TYPE_CHECKING:
    from typing import Protocol

    Subparsers = argparse._SubParsersAction[Parser]

    class AddsItself(Protocol):
        """A verb, or a group of verbs."""

        def add_to(self, verbs: Subparsers, words: Sequence[str] = ()) -> None:
            """Add it to the parsers of a command's verbs."""


_Options = TypeVar("_Options", bound=OptionTable)


class Verb(Generic[_Options]):
    """A verb with its options. run: carries it out, and returns the exit code.

    help: a verb without it is not listed. passing: words that are none of its options are for
    another program.
    """

    def __init__(
        self,
        name: str,
        options: type[_Options],
        run: Callable[[_Options], int],
        help: str = "",
        description: str | None = None,
        epilog: str | None = None,
        *,
        passing: bool = False,
    ) -> None:
        self.name, self.options, self.run, self.passing = name, options, run, passing
        self.help, self.description, self.epilog = help, description, epilog

    def add_to(self, verbs: Subparsers, words: Sequence[str] = ()) -> None:
        """Add the verb to the parsers of a command's verbs."""
        parser = verbs.add_parser(
            self.name, help=self.help, description=self.description, epilog=self.epilog
        )
        if not self.help:
            verbs._choices_actions.pop()  # the list of verbs leaves it out
        if self.passing:
            parser.__class__ = PassingParser
        self.options.add_to(parser)
        parser.set_defaults(run_verb=lambda parsed: self.run(self.options(parsed)))


class VerbGroup:
    """A verb that has verbs of its own.

    command: all words, such as `podwright slurm`. verbs: those that are loaded with the group.
    modules: the module of each further verb, which has VERBS. readers: headings under which --help
    lists the verbs, each with its verbs.
    """

    def __init__(
        self,
        command: str,
        help: str,
        description: str | None = None,
        epilog: str | None = None,
        verbs: Sequence[AddsItself] = (),
        *,
        modules: Mapping[str, str] | None = None,
        metavar: str = "VERB",
        readers: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.command, self.verbs, self.modules, self.metavar = command, verbs, modules, metavar
        self.help, self.description, self.epilog = help, description, epilog
        self.readers = readers or {}

    def add_to(self, verbs: Subparsers, words: Sequence[str] = ()) -> None:
        """Add the group; if `words` begin with a verb of `modules`, only that one."""
        parser = verbs.add_parser(
            self.command.split()[-1],
            help=self.help,
            description=self.description,
            epilog=self.epilog,
        )
        parser.verb_groups = self.readers
        below = parser.add_subparsers(metavar=self.metavar, required=True, prog=self.command)
        for verb in self.verbs:
            verb.add_to(below)
        add_modules(self.modules or {}, below, words)


def add_modules(modules: Mapping[str, str], verbs: Subparsers, words: Sequence[str]) -> None:
    """Add the verbs of modules below `podwright.cli`; of one alone if `words` begin with its verb.

    The smaller parser is built faster and reads the words in the same way.
    """
    verb = words[0] if words else ""
    for name in (modules[verb],) if verb in modules else dict.fromkeys(modules.values()):
        module = importlib.import_module(f"podwright.cli.{name}")
        for each in module.VERBS:
            each.add_to(verbs, words[1:])
