"""A job script as one value: what it requests from Slurm, and what it starts."""

from __future__ import annotations

import re
from functools import cached_property

from podwright.errors import InvalidRequest
from podwright.gpu.lint._directives import (
    MAGIC,
    left_open,
    read_directives,
    waits_for_value,
)
from podwright.gpu.lint._launchers import Launch, launch_of
from podwright.gpu.lint._shell import Shell, parse
from podwright.gpu.requests import Given, SlurmRequest, read_request

_COUNTS = {"nodes", "gres", "tasks-per-node", "exclusive", "nodelist", "mem"}
# Names and lines that another program fills in, and variables that the job itself may have.
_TEMPLATE_NAME = re.compile(r"\.(tpl|tmpl|template|j2|jinja2?|in|erb|mustache)$|template", re.I)
_TEMPLATES = re.compile(r"(^|[/_.-])templates?($|[/_.-])")  # a folder of templates
_FILLED_LINE = re.compile(r"\s*(\{%-?\s*\w.*%\}|\{\{-?\s*[\w.]+\s*(\|.*)?-?\}\})\s*$")
_VARIABLE = re.compile(r"\$\{?(?!SLURM_|USER\b|HOME\b)(\w+)")
# A dollar sign that is protected from a shell that writes this script: \$SLURM_JOB_ID in a
# here-document.
_KEPT_FROM_A_SHELL = re.compile(r"(?<!\\)\\\$\{?(SLURM_|\w+\b)")
_JOB_NAME = re.compile(r"\.(sh|bash|sbatch|slurm|slm|sb|job|pbs)$")
_FEW = 3  # lines above the only shebang, which should be below it
_MANY = 3  # variables in #SBATCH lines that make it a template: nobody makes that mistake so often
_SHELLS = re.compile(r"#!\s*(\S*/)?(env\s+(-\S+\s+)*)?(ba|da|z|k)?sh\b")


class Script:
    """A script. What Slurm cannot read in it is recorded and never raised. Lines count from 1.

    `name` is the name of its file, if it has one. `among_templates`: it is in a folder of
    templates. `directives` are what sbatch reads, `problems` what it refuses, `unknown` options
    that may be a plugin's. `parts` is 1, or the number of parts of a heterogeneous job. `open` has
    the options whose values a template leaves open, and `refused` what sbatch refuses in their
    present form.
    """

    def __init__(self, text: str, name: str = "") -> None:
        self.text = text
        folder, _, self.name = name.rpartition("/")
        self.among_templates = bool(_TEMPLATES.search(folder))
        self.lines = [line.removesuffix("\r") for line in text.split("\n")]
        if self.lines and not self.lines[-1]:
            self.lines.pop()
        directives = read_directives(self.lines)
        self.directives = directives.given
        self.problems = directives.problems
        self.unknown = directives.unknown
        self.parts = directives.parts
        self.first_command = directives.first_command
        self.open = directives.open
        self.refused = directives.refused
        self.request = _request([given for _, given in directives.given])

    @property
    def settled(self) -> bool:
        """Whether all counts are fixed: the job has one part, and no template leaves a count
        open.
        """
        return self.parts == 1 and not any(
            name in _COUNTS or "gpu" in name or name.startswith("ntasks") for name in self.open
        )

    @property
    def template(self) -> int:
        """The first line that leaves a value to be filled in; 0 if none does.

        Below the first command, only whole lines count ({{ command }}, {% if … %}), and #SBATCH
        lines: a program's own text is full of braces and brackets.
        """
        last = self.first_command or len(self.lines)
        variables: dict[str, int] = {}
        for number, line in enumerate(self.lines, 1):
            above = number <= last and waits_for_value(line)
            below = line.startswith(MAGIC) and left_open(line)
            if _KEPT_FROM_A_SHELL.search(line) and number >= last:
                return number
            if self.for_a_program or _FILLED_LINE.match(line) or above or below:
                return number
            if number <= last and line.startswith(MAGIC):
                code = line.partition(" #")[0]
                variables |= dict.fromkeys(_VARIABLE.findall(code), number)
        return next(iter(variables.values())) if len(variables) >= _MANY else 0

    @property
    def for_a_program(self) -> bool:
        """Whether its name or folder shows that another program fills it in."""
        return self.among_templates or bool(_TEMPLATE_NAME.search(self.name))

    @property
    def prose(self) -> bool:
        """Whether it begins like notes or a page, and not like a script that has lost its
        shebang.
        """
        first = next((line for line in self.lines if line.strip()), "#").lstrip("\ufeff \t")
        if first.startswith("#!"):
            return False
        shebangs = [number for number, line in enumerate(self.lines) if line.startswith("#!")]
        if _JOB_NAME.search(self.name) and len(shebangs) == 1:
            return sum(map(bool, self.lines[: shebangs[0]])) > _FEW
        below = self.lines[self.first_command :] if self.first_command else []
        within = any(line.startswith("#!") for line in below)  # a script, and text about it
        within = within or (not self.directives and any(x.startswith(MAGIC) for x in below))
        return within or first[:1].isalpha() or first.startswith(":")  # : 'a long comment'

    @cached_property
    def submits(self) -> bool:
        """Whether it has no #SBATCH line of its own and submits jobs, which is its purpose."""
        return not self.directives and any(
            MAGIC in command.reads or any(word.endswith("sbatch") for word in command.words[:1])
            for command in self.shell.commands
        )

    @cached_property
    def shell(self) -> Shell:
        """The commands of the script; none if it is not a shell script."""
        first = self.lines[0] if self.lines else ""
        if first.startswith("#!") and not _SHELLS.match(first):
            return Shell()
        return parse("\n".join(self.lines) + "\n")

    @cached_property
    def launches(self) -> list[Launch]:
        """The programs that it starts, in order."""
        return [launch for launch in map(launch_of, self.shell.commands) if launch]

    def line_of(self, *options: str) -> int:
        """Return the line of the last of these options; 0 if none was given."""
        lines = [line for line, given in self.directives if given.name in options]
        return lines[-1] if lines else 0

    def option(self, *names: str) -> Given | None:
        """Return the last of these options."""
        return next((g for _, g in reversed(self.directives) if g.name in names), None)

    def at(self, line: int) -> str:
        """Return a line's text."""
        return self.lines[line - 1] if 0 < line <= len(self.lines) else ""


def read_script(text: str, name: str = "") -> Script:
    """Read a script from its text. The `name` of its file may show that it is a template."""
    return Script(text, name)


def _request(given: list[Given]) -> SlurmRequest:
    """Return the request, without values that contradict each other."""
    readable = [option for option in given if "$" not in option.value and "," not in _sizes(option)]
    try:
        return read_request(readable, "sbatch")
    except InvalidRequest:
        return SlurmRequest("sbatch", given=tuple(given))


def _sizes(given: Given) -> str:
    return given.value if given.name == "nodes" else ""
