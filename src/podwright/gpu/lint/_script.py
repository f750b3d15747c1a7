"""A job script as one value: what it requests from Slurm, and what it starts."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property

from podwright.errors import InvalidRequest
from podwright.gpu.lint._directives import (
    DIRECTIVE_PREFIX,
    has_placeholder,
    read_directives,
    waits_for_value,
)
from podwright.gpu.lint._shell import Shell, parse
from podwright.gpu.requests import Given, SlurmRequest, read_request

_COUNT_OPTIONS = {"nodes", "gres", "tasks-per-node", "exclusive", "nodelist", "mem"}
# Names and lines that another program fills in, and variables that the job itself may have.
_TEMPLATE_NAME_PATTERN = re.compile(
    r"\.(tpl|tmpl|template|j2|jinja2?|in|erb|mustache)$|template", re.I
)
_TEMPLATE_FOLDER_PATTERN = re.compile(r"(^|[/_.-])templates?($|[/_.-])")  # a folder of templates
_FILLED_LINE_PATTERN = re.compile(r"\s*(\{%-?\s*\w.*%\}|\{\{-?\s*[\w.]+\s*(\|.*)?-?\}\})\s*$")
_VARIABLE_PATTERN = re.compile(r"\$\{?(?!SLURM_|USER\b|HOME\b)(\w+)")
# A dollar sign that is protected from a shell that writes this script: \$SLURM_JOB_ID in a
# here-document.
_ESCAPED_VARIABLE = re.compile(r"(?<!\\)\\\$\{?(SLURM_|\w+\b)")
_JOB_FILE_PATTERN = re.compile(r"\.(sh|bash|sbatch|slurm|slm|sb|job|pbs)$")
_MAX_LINES_ABOVE_SHEBANG = 3  # lines above the only shebang, which should be below it
_MIN_TEMPLATE_VARIABLES = (
    3  # variables in #SBATCH lines that make it a template: nobody makes that mistake so often
)
_SHELL_SHEBANG_PATTERN = re.compile(r"#!\s*(\S*/)?(env\s+(-\S+\s+)*)?(ba|da|z|k)?sh\b")


class Script:
    """A script. What Slurm cannot read in it is recorded and never raised. Lines count from 1.

    `file_path` is the name of its file, if it has one. `among_templates`: it is in a folder of
    templates. `directives` are what sbatch reads, `problems` what it refuses, `unknown` options
    that may be a plugin's. `parts` is 1, or the number of parts of a heterogeneous job. `open` has
    the options whose values a template leaves open, and `refused` what sbatch refuses in their
    present form.
    """

    def __init__(self, script_text: str, file_path: str, read_beside: Callable[[str], str]) -> None:
        self.text = script_text
        self.path, self.read_beside = file_path, read_beside
        folder, _, self.name = file_path.rpartition("/")
        self.among_templates = bool(_TEMPLATE_FOLDER_PATTERN.search(folder))
        self.lines = [line.removesuffix("\r") for line in script_text.split("\n")]
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
        self.request = _consistent_request([option for _, option in directives.given])

    @property
    def settled(self) -> bool:
        """Whether all counts are fixed: the job has one part, and no template leaves a count
        open.
        """
        return self.parts == 1 and not any(
            name in _COUNT_OPTIONS or "gpu" in name or name.startswith("ntasks")
            for name in self.open
        )

    @cached_property
    def template(self) -> int:
        """The first line that leaves a value to be filled in; 0 if none does.

        Below the first command, only whole lines count ({{ command }}, {% if … %}), and #SBATCH
        lines: a program's own text is full of braces and brackets.
        """
        last_line = self.first_command or len(self.lines)
        line_by_variable: dict[str, int] = {}
        for line_number, line_text in enumerate(self.lines, 1):
            is_open_above = line_number <= last_line and waits_for_value(line_text)
            is_open_directive = line_text.startswith(DIRECTIVE_PREFIX) and has_placeholder(
                line_text
            )
            if line_number in self.shell.escaped and _ESCAPED_VARIABLE.search(line_text):
                return line_number
            if (
                self.is_program_template
                or _FILLED_LINE_PATTERN.match(line_text)
                or is_open_above
                or is_open_directive
            ):
                return line_number
            if line_number <= last_line and line_text.startswith(DIRECTIVE_PREFIX):
                directive_text = line_text.partition(" #")[0]
                line_by_variable |= dict.fromkeys(
                    _VARIABLE_PATTERN.findall(directive_text), line_number
                )
        return (
            next(iter(line_by_variable.values()))
            if len(line_by_variable) >= _MIN_TEMPLATE_VARIABLES
            else 0
        )

    @property
    def is_program_template(self) -> bool:
        """Whether its name or folder shows that another program fills it in."""
        return self.among_templates or bool(_TEMPLATE_NAME_PATTERN.search(self.name))

    @property
    def is_prose(self) -> bool:
        """Whether it begins like notes or a page, and not like a script that has lost its
        shebang.
        """
        first_line = next((line for line in self.lines if line.strip()), "#").lstrip("\ufeff \t")
        if first_line.startswith("#!"):
            return False
        shebangs = [index for index, line in enumerate(self.lines) if line.startswith("#!")]
        if _JOB_FILE_PATTERN.search(self.name) and len(shebangs) == 1:
            return sum(map(bool, self.lines[: shebangs[0]])) > _MAX_LINES_ABOVE_SHEBANG
        lines_below = self.lines[self.first_command :] if self.first_command else []
        has_shebang_below = any(
            line.startswith("#!") for line in lines_below
        )  # a script, and text about it
        has_shebang_below = has_shebang_below or (
            not self.directives
            and any(below_line.startswith(DIRECTIVE_PREFIX) for below_line in lines_below)
        )
        return (
            has_shebang_below or first_line[:1].isalpha() or first_line.startswith(":")
        )  # : 'a long comment'

    @cached_property
    def submits_jobs(self) -> bool:
        """Whether it has no #SBATCH line of its own and submits jobs, which is its purpose."""
        return not self.directives and any(
            DIRECTIVE_PREFIX in command.reads
            or any(word.endswith("sbatch") for word in command.words[:1])
            for command in self.shell.commands
        )

    @cached_property
    def shell(self) -> Shell:
        """The commands of the script; none if it is not a shell script."""
        line = self.lines[0] if self.lines else ""
        if line.startswith("#!") and not _SHELL_SHEBANG_PATTERN.match(line):
            return Shell()
        return parse("\n".join(self.lines) + "\n")

    def file_text(self, path: str) -> str:
        """Return the text of a file that the script writes, or that is beside it; or nothing."""
        return self.shell.files.get(path) or self.read_beside(path)

    def line_of(self, *option_names: str) -> int:
        """Return the line of the last of these options; 0 if none was given."""
        line_numbers = [number for number, option in self.directives if option.name in option_names]
        return line_numbers[-1] if line_numbers else 0

    def option(self, *names: str) -> Given | None:
        """Return the last of these options."""
        return next(
            (directive for _, directive in reversed(self.directives) if directive.name in names),
            None,
        )

    def at(self, line_number: int) -> str:
        """Return a line's text."""
        return self.lines[line_number - 1] if 0 < line_number <= len(self.lines) else ""


def read_script(
    script_text: str, file_path: str = "", read_beside: Callable[[str], str] | None = None
) -> Script:
    """Read a script from its text. The `file_path` of its file may show that it is a template.

    read_beside: returns the text of a file that a launcher reads, empty if there is none.
    """
    return Script(script_text, file_path, read_beside or (lambda path: ""))


def _consistent_request(options: list[Given]) -> SlurmRequest:
    """Return the request, without values that contradict each other."""
    readable_options = [
        option
        for option in options
        if "$" not in option.value and "," not in _node_counts_text(option)
    ]
    try:
        return read_request(readable_options, "sbatch")
    except InvalidRequest:
        return SlurmRequest("sbatch", given=tuple(options))


def _node_counts_text(option: Given) -> str:
    return option.value if option.name == "nodes" else ""
