"""The parsing of arguments that all commands share. `_running` handles their endings.

Every command has `build_parser() -> Parser` and `main(argv=None) -> int`; `main` is `return
run(lambda: …, prog="vipu")`. A mistyped word gets one line on standard error that names the nearest
right one, and exit code 2.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from podwright.cli.shared._run_to_exit_code import complain as complain
from podwright.cli.shared._run_to_exit_code import run as run

EXIT_USAGE = 2

_NUMBER = re.compile(r"-\d+(\.\d+)?$")


class _Formatter(argparse.HelpFormatter):
    """A formatter that keeps the lines of a description, and folds those that are too long.

    It determines the width itself: argparse makes one for each option, and would load shutil.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=columns() - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Fold what is too long: sentences are filled anew, an example's comment goes below it."""
        lines: list[str] = []
        paragraph: list[str] = []
        for line in [*text.splitlines(), ""]:
            is_text = bool(line[:1].strip())
            if is_text:
                paragraph.append(line)
            if paragraph and (not is_text or line.endswith((".", ":", ";"))):
                too_long = max(map(len, paragraph)) > width + 2
                lines += _wrapped(" ".join(paragraph), width) if too_long else paragraph
                paragraph = []
            if not is_text:
                lines += _folded_example(line, width)
        return "".join(f"{indent}{line}\n" for line in lines[:-1])

    def _split_lines(self, text: str, width: int) -> list[str]:
        return _wrapped(" ".join(text.split()), width)


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    import textwrap  # only for help

    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )


def _folded_example(line: str, width: int) -> list[str]:
    """Return the line of an example, with its comment below it where both do not fit into one."""
    example, *comment = re.split(r"(?<=\S)\s{3,}", line, maxsplit=1)
    if len(line) <= width + 2 or not comment:
        return [line]
    return [example, *_wrapped(comment[0], width, " " * 6)]


def columns() -> int:
    """Return the width of the terminal, or COLUMNS; 80 when neither is known."""
    try:
        return int(os.environ["COLUMNS"]) or 80
    except (KeyError, ValueError):
        pass
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that answers mistakes with one line and the nearest right word.

    It accepts no abbreviations, since a new option must not change the meaning of a script.
    """

    def __init__(
        self,
        prog: str | None = None,
        description: str | None = None,
        epilog: str | None = None,
        parents: Sequence[argparse.ArgumentParser] = (),
        add_help: bool = True,
    ) -> None:
        super().__init__(
            prog,
            description=description,
            epilog=epilog,
            parents=parents,
            formatter_class=_Formatter,
            add_help=add_help,
            allow_abbrev=False,
        )
        self._given: list[str] = []
        #: Headings under which --help lists the verbs, each with its verbs.
        self.verb_groups: Mapping[str, Sequence[str]] = {}

    def format_help(self) -> str:
        """Return the help, with the verbs in their groups."""
        lists = [a for a in self._actions if isinstance(a, argparse._SubParsersAction)]
        verbs = {verb.dest: verb for verb in lists[0]._choices_actions} if lists else {}
        if not self.verb_groups or not verbs:
            return super().format_help()
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, [])
        formatter.add_text(self.description)
        for heading, names in self.verb_groups.items():
            formatter.start_section(heading)
            formatter.add_arguments([verbs[name] for name in names if name in verbs])
            formatter.end_section()
        formatter.start_section("options")
        formatter.add_arguments(self._optionals._group_actions)
        formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Do as argparse does, except that the parser that knows the words refuses unknown ones
        itself.
        """
        self._given = list(sys.argv[1:] if args is None else args)
        parsed, extras = super().parse_known_args(self._given, namespace)
        if extras:
            self.error(f"unexpected {quoted(extras)}; see --help")
        return parsed, []

    def error(self, message: str) -> NoReturn:
        """Print one line on standard error, and exit with code 2. The line of an unknown option
        names what is missing.
        """
        missing = message.removeprefix("the following arguments are required: ")
        if missing != message:
            message = f"missing {missing}; see --help"
        if message.startswith(("missing ", "unexpected ")):
            message = self._unknown_option() or message
        message = message.replace("expected one argument", "it needs a value")
        self.exit(EXIT_USAGE, f"{self.prog}: {' '.join(message.split())}\n")

    def _unknown_option(self, before: str = "--") -> str:
        """Return the line for the first unknown option before the word `before`; empty if there is
        none.
        """
        known = self._option_string_actions
        for word in self._given:
            if word in (before, "--"):
                break
            option = word.split("=", 1)[0]
            if not word.startswith("-") or word == "-" or _NUMBER.match(word) or option in known:
                continue
            if not word.startswith("--") and word[:2] in known:
                continue  # -Hname
            long = [name for name in known if name.startswith("--")]
            return f"unknown option {option!r}{nearest(option, long)}"
        return ""

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is None or value in action.choices:
            return
        hint = nearest(str(value), [str(choice) for choice in action.choices], show_all=True)
        if action.option_strings:
            raise argparse.ArgumentError(action, f"not {value!r}{hint}")
        unknown = self._unknown_option(before=str(value))
        name = action.metavar or action.dest
        raise argparse.ArgumentError(None, unknown or f"unknown {name} {value!r}{hint}")


class PassingParser(Parser):
    """A parser that keeps the words that it does not know, because they are for another program.

    They are in the attribute `words` of the result.
    """

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Read the options of this parser, wherever they stand between other words."""
        own: list[str] = []
        passed: list[str] = []
        words = list(args or [])
        while words:
            word = words.pop(0)
            action = self._option_string_actions.get(word.split("=", 1)[0])
            if action is None:
                passed.append(word)
                continue
            own.append(word)
            if action.nargs != 0 and "=" not in word and words:
                own.append(words.pop(0))
        parsed, rest = super().parse_known_args(own, namespace)
        parsed.words = passed
        return parsed, rest


def nearest(word: str, known: Iterable[str], *, show_all: bool = False) -> str:
    """Return `; did you mean …?` with the known word nearest to `word`, or a hint where to look."""
    import difflib  # imported only after a mistake

    words = list(known)
    close = difflib.get_close_matches(word.lower(), words, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; it is one of: {', '.join(words)}" if show_all else "; see --help"


def quoted(words: Iterable[str]) -> str:
    """Return words as a person would quote them in a sentence."""
    return " ".join(repr(word) for word in words)
