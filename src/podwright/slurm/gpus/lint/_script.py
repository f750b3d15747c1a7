"""A job script as one value: what it asks Slurm for, and what it starts."""

from __future__ import annotations

import re
from functools import cached_property

from podwright.errors import InvalidRequest
from podwright.slurm.gpus.lint._directives import (
    MAGIC,
    left_open,
    read_directives,
    waits_for_value,
)
from podwright.slurm.gpus.lint._launchers import Launch, launch_of
from podwright.slurm.gpus.lint._shell import Shell, parse
from podwright.slurm.gpus.requests import Given, SlurmRequest, read_request

_COUNTS = {"nodes", "gres", "tasks-per-node", "exclusive", "nodelist", "mem"}
# Names and lines that another program fills in, and variables that the job itself may have.
_TEMPLATE_NAME = re.compile(r"\.(tpl|tmpl|template|j2|jinja2?|in|erb|mustache)$|template", re.I)
_TEMPLATES = re.compile(r"(^|[/_.-])templates?($|[/_.-])")  # a folder of them
_FILLED_LINE = re.compile(r"\s*(\{%-?\s*\w.*%\}|\{\{-?\s*[\w.]+\s*(\|.*)?-?\}\})\s*$")
_VARIABLE = re.compile(r"\$\{?(?!SLURM_|USER\b|HOME\b)(\w+)")
_MANY = 3  # variables in #SBATCH lines that make it a template: nobody errs so often
_SHELLS = re.compile(r"#!\s*(\S*/)?(env\s+(-\S+\s+)*)?(ba|da|z|k)?sh\b")


class Script:
    """A script; whatever Slurm cannot read in it is told, never raised. Lines count from 1.

    `name` is its file's, where it has one; `among_templates`: it is in a folder of them.
    `directives` are what sbatch reads, `problems` what it refuses, `unknown` options that may be a
    plugin's. `parts` is 1, or the number of parts of a heterogeneous job; `open` names the options
    whose values a template leaves open.
    """

    def __init__(self, text: str, name: str = "") -> None:
        self.text = text
        folder, _, self.name = name.rpartition("/")
        self.among_templates = bool(_TEMPLATES.search(folder))
        self.lines = [line.removesuffix("\r") for line in text.split("\n")]
        if self.lines and not self.lines[-1]:
            self.lines.pop()
        found = read_directives(self.lines)
        self.directives = found.given
        self.problems = found.problems
        self.unknown = found.unknown
        self.parts = found.parts
        self.first_command = found.first_command
        self.open = found.open
        self.request = _request([given for _, given in found.given])

    @property
    def settled(self) -> bool:
        """Whether all counts are said: one part, and no value that a template leaves open."""
        return self.parts == 1 and not any(
            name in _COUNTS or "gpu" in name or name.startswith("ntasks") for name in self.open
        )

    @property
    def template(self) -> int:
        """The first line that leaves a value to be filled in, 0 where none does.

        Below the first command only whole lines count ({{ command }}, {% if … %}), and #SBATCH
        lines: a program's own text is full of braces and brackets.
        """
        last = self.first_command or len(self.lines)
        named = self.among_templates or _TEMPLATE_NAME.search(self.name)
        variables: dict[str, int] = {}
        for number, line in enumerate(self.lines, 1):
            above = number <= last and waits_for_value(line)
            below = line.startswith(MAGIC) and left_open(line)
            if named or _FILLED_LINE.match(line) or above or below:
                return number
            if number <= last and line.startswith(MAGIC):
                said = line.partition(" #")[0]
                variables |= dict.fromkeys(_VARIABLE.findall(said), number)
        return next(iter(variables.values())) if len(variables) >= _MANY else 0

    @property
    def prose(self) -> bool:
        """Whether it begins like notes or a page, and not like a script with its shebang lost."""
        first = next((line for line in self.lines if line.strip()), "#").lstrip("\ufeff \t")
        if first.startswith("#!"):
            return False
        below = self.lines[self.first_command :] if self.first_command else []
        within = any(line.startswith("#!") for line in below)  # a script, and what is said of it
        within = within or (not self.directives and any(x.startswith(MAGIC) for x in below))
        return within or first[:1].isalpha() or first.startswith(":")  # : 'a long comment'

    @cached_property
    def submits(self) -> bool:
        """Whether it has no #SBATCH line of its own and submits jobs: they are what it is for."""
        return not self.directives and any(
            MAGIC in one.reads or any(word.endswith("sbatch") for word in one.words[:1])
            for one in self.shell.commands
        )

    @cached_property
    def shell(self) -> Shell:
        """Its commands; none where it is no script of a shell."""
        first = self.lines[0] if self.lines else ""
        if first.startswith("#!") and not _SHELLS.match(first):
            return Shell()
        return parse("\n".join(self.lines) + "\n")

    @cached_property
    def launches(self) -> list[Launch]:
        """The programs that it starts, in order."""
        return [one for one in map(launch_of, self.shell.commands) if one]

    def line_of(self, *options: str) -> int:
        """The line of the last of these options, 0 where none was given."""
        found = [line for line, given in self.directives if given.name in options]
        return found[-1] if found else 0

    def option(self, *names: str) -> Given | None:
        """The last of these options."""
        return next((g for _, g in reversed(self.directives) if g.name in names), None)

    def at(self, line: int) -> str:
        """A line's text."""
        return self.lines[line - 1] if 0 < line <= len(self.lines) else ""


def read_script(text: str, name: str = "") -> Script:
    """The script of this text; a file's `name` may say that it is a template."""
    return Script(text, name)


def _request(given: list[Given]) -> SlurmRequest:
    """The request, without values that cannot be read together."""
    kept = [one for one in given if "$" not in one.value and "," not in _sizes(one)]
    try:
        return read_request(kept, "sbatch")
    except InvalidRequest:
        return SlurmRequest("sbatch", given=tuple(given))


def _sizes(given: Given) -> str:
    return given.value if given.name == "nodes" else ""
