"""Rules about whether sbatch can read the file, its #SBATCH lines, and their words."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podwright.gpu.lint._directives import (
    DIRECTIVE_PREFIX,
    LOST_SHEBANG_PATTERN,
    ODD_BLANK_PATTERN,
    Problem,
    has_placeholder,
    read_directives,
    words_of,
)
from podwright.gpu.lint._option_values import FIXED_VALUE_OPTIONS
from podwright.gpu.lint._rule_types import Case, Found, Level, rule
from podwright.gpu.requests import is_number, known

UNKNOWN_OPTION = "unknown-option"
_EVIDENCE_TEST = "tests/outer/gpu/test_lint.py::test_slurm_refuses_what_lint_says_it_refuses"
_SBATCH_MANUAL_URL = "https://slurm.schedmd.com/sbatch.html"
_BYTE_ORDER_MARK = "\ufeff"
_GRES_PATTERN = re.compile(r"(--gres[= ]|--gpus[\w-]*[= ])(gpu:)?(\S+)")
_LOST_MARK_PATTERN = re.compile(r"^\s*#+\s*([A-Za-z]{5,7})[\s:]*(--?[a-zA-Z].*)$")
# A word in capitals, within any marks, in the place of a number or an option: @NODES, N.
_PLACEHOLDER_VALUE_PATTERN = re.compile(
    r"(?:^|[=:\s])([A-Z*]+|x+|[^a-z\s]*[A-Z_]{2,}[^a-z\s]*|[A-Za-z_]+)$"
)


@rule(
    "dos-line-breaks",
    "mistake",
    "lines end as on DOS (CRLF), and sbatch refuses the script",
    _EVIDENCE_TEST,
    "takes the carriage returns out",
)
def dos_line_breaks(lint_case: Case) -> Iterator[Found]:
    text = lint_case.script.text
    if "\r\n" in text:
        number = text[: text.index("\r\n")].count("\n") + 1
        yield Found(
            number,
            "lines end with CRLF: sbatch refuses the script",
            sure=True,
            whole=text.replace("\r\n", "\n"),
        )


@rule(
    "no-shebang",
    "mistake",
    "the first two bytes are not #!, and sbatch refuses the script",
    _EVIDENCE_TEST,
    "moves the shebang to the top, or writes #!/bin/bash",
)
def no_shebang(lint_case: Case) -> Iterator[Found]:
    script = lint_case.script
    if not script.text.strip():
        yield Found(1, "there is nothing in the script: sbatch refuses it")
        return
    if "\0" in script.text:
        line = script.text[: script.text.index("\0")].count("\n") + 1
        is_utf16 = "#\0" in script.text[:6] or script.text.startswith(
            ("\udcff\udcfe", "\udcfe\udcff")
        )
        problem = "this is text in UTF-16" if is_utf16 else "a NUL character is in this line"
        yield Found(line, f"{problem}: sbatch refuses the script")
        return
    if script.text.startswith("#!"):
        return
    reason = "the script does not begin with #!: sbatch refuses it"
    if script.text.startswith(_BYTE_ORDER_MARK + "#!"):
        reason = "a byte-order mark stands before #!: sbatch refuses the script"
        yield Found(1, reason, sure=True, whole=script.text.removeprefix(_BYTE_ORDER_MARK))
        return
    first_text_line = next((index for index, line in enumerate(script.lines) if line.strip()), 0)
    if script.lines[first_text_line].startswith("#!"):
        script_lines = script.text.split("\n")
        reordered_lines = [
            script_lines[first_text_line],
            *script_lines[:first_text_line],
            *script_lines[first_text_line + 1 :],
        ]
        yield Found(1, reason, sure=True, whole="\n".join(reordered_lines))
        return
    if re.match(r"#\s+!\s*/", script.lines[0]):
        corrected_line = "#!" + script.lines[0].partition("!")[2].strip()
        yield Found(1, reason, corrected_line, sure=True)
        return
    if LOST_SHEBANG_PATTERN.match(script.lines[0]):
        yield Found(1, reason, "#!" + script.lines[0].lstrip("! \t").rstrip(), sure=True)
        return
    broken_shebang = re.match(r"#!?/\S*/(ba|z|k|da)?sh\b", script.lines[0])
    is_certain = (
        bool(script.directives)
        and not broken_shebang
        and not any(line.startswith("#!") for line in script.lines)
    )
    # A file with options and no command may be a part of a script, so this is only a hint.
    level: Level = "mistake" if script.first_command else "better"
    yield Found(1, reason, "#!/bin/bash", sure=is_certain, before=True, level=level)


@rule(
    "template",
    "better",
    "values are left to be filled in, and what hangs on them is not judged; where sbatch refuses "
    "such a line as it stands, a mistake",
    _EVIDENCE_TEST,
)
def template(lint_case: Case) -> Iterator[Found]:
    script = lint_case.script
    if script.refused and not script.is_program_template and not script.is_prose:
        reason = "a value is to be filled in here, and sbatch refuses the line as it stands"
        yield Found(script.refused.line, reason, level="mistake")
    elif number := script.template:
        yield Found(number, "a value is to be filled in here: what hangs on it is not judged")


def _problems_of_rule(rule_name: str, lint_case: Case) -> Iterator[Problem]:
    yield from (problem for problem in lint_case.script.problems if problem.kind == rule_name)


@rule(
    "gres-order",
    "mistake",
    "GRES are written name:type:count; in another order sbatch refuses the job",
    _EVIDENCE_TEST,
    "puts one type before the count",
)
def gres_order(lint_case: Case) -> Iterator[Found]:
    for problem in _problems_of_rule("bad-value", lint_case):
        reordered = _reorder_gres(lint_case.script.at(problem.line))
        if reordered:
            line, is_certain = reordered
            reason = f"GRES are written name:type:count, with one type: {problem.reason}"
            yield Found(problem.line, reason, line, sure=is_certain)


def _reorder_gres(line_text: str) -> tuple[str, bool] | None:
    """Return the line with type and count in order, and whether there was one type."""
    match = _GRES_PATTERN.search(line_text)
    gres_parts = match[3].split(":") if match else []
    gres_counts = [part for part in gres_parts if is_number(part)]
    gres_types = [part for part in gres_parts if part and re.fullmatch(r"[A-Za-z]\w*", part)]
    if (
        not match
        or len(gres_counts) != 1
        or not gres_types
        or len(gres_counts) + len(gres_types) != len(gres_parts)
    ):
        return None
    ordered_gres = f"{match[1]}{match[2] or ''}{gres_types[-1]}:{gres_counts[0]}"
    if ordered_gres == match[0]:
        return None
    return line_text[: match.start()] + ordered_gres + line_text[match.end() :], len(
        gres_types
    ) == 1


@rule(
    UNKNOWN_OPTION,
    "mistake",
    "sbatch has no such option and refuses the script. What may be a plugin's is told as what "
    "could be better, unless the site's own `sbatch --help` is known",
    _EVIDENCE_TEST,
    "writes - for _ in an option's name, and --chdir for --workdir",
)
def unknown_option(lint_case: Case) -> Iterator[Found]:
    script, site_options = lint_case.script, lint_case.site.options
    for problem in (*_problems_of_rule(UNKNOWN_OPTION, lint_case), *script.unknown):
        option_name = problem.word.lstrip("-").partition("=")[0]
        if option_name in site_options:
            continue
        line_text = script.at(problem.line)
        suggestion = problem.near.partition("=")[0]
        written_option = problem.word.partition("=")[0]
        corrected_line = line_text.replace(written_option, suggestion, 1) if suggestion else ""
        is_certain_fix = (
            bool(suggestion)
            and "--" + option_name.replace("_", "-") == suggestion
            and "_" in option_name
        )
        candidates = [option for option in known("sbatch") if option.startswith(option_name)]
        if problem.renamed:
            reason = problem.reason
            is_certain_fix = problem.word.endswith(option_name) or suggestion == "--chdir"
        elif len(candidates) > 1 and len(option_name) > 1:
            corrected_line = ""
            reason = f"--{option_name} may be " + " or ".join(
                f"--{option}" for option in candidates[:4]
            )
        else:
            reason = problem.reason + (f": {suggestion} is meant?" if suggestion else "")
        is_mistake = problem.word[1:2] != "-" or bool(
            suggestion or site_options or len(candidates) > 1
        )
        if not is_mistake:
            reason += "; a plugin of the site may have it"
        yield Found(
            problem.line,
            reason,
            corrected_line,
            sure=is_certain_fix,
            level="mistake" if is_mistake else "better",
        )


@rule(
    "bad-value",
    "mistake",
    "a value that sbatch cannot read, and refuses",
    "tests/outer/gpu/test_lint_values.py::test_values_are_read_as_sbatch_reads_them",
)
def bad_value(lint_case: Case) -> Iterator[Found]:
    for problem in _problems_of_rule("bad-value", lint_case):
        line_text = lint_case.script.at(problem.line)
        if _reorder_gres(line_text):
            continue
        suggestion = problem.near.partition("=")[0]
        corrected_line = (
            line_text.replace(problem.word, f"-{problem.word}", 1) if suggestion else ""
        )
        hint = f" ({suggestion} has two dashes)" if suggestion else ""
        has_fixed_values = problem.word.lstrip("-").partition("=")[0] in FIXED_VALUE_OPTIONS
        is_placeholder = (
            not has_fixed_values
            and problem.word.startswith("-")
            and _PLACEHOLDER_VALUE_PATTERN.search(problem.word)
        )
        level: Level = "better" if is_placeholder else "mistake"
        yield Found(problem.line, problem.reason + hint, corrected_line, level=level)


@rule(
    "stray-word",
    "mistake",
    "a word that belongs to no option, for which sbatch refuses the script",
    _EVIDENCE_TEST,
)
def stray_word(lint_case: Case) -> Iterator[Found]:
    for problem in _problems_of_rule("stray-word", lint_case):
        is_placeholder = re.fullmatch(r"\W*(?![KMGT]i?B?$)[A-Z_]{2,}\W*", problem.word)
        yield Found(problem.line, problem.reason, level="better" if is_placeholder else "mistake")


@rule(
    "typographic-dash",
    "mistake",
    "a dash or a blank as word processors and web pages write it, in place of the keyboard's",
    _EVIDENCE_TEST,
    "writes hyphens and blanks",
)
def typographic_dash(lint_case: Case) -> Iterator[Found]:
    for problem in _problems_of_rule("typographic-dash", lint_case):
        line_text = lint_case.script.at(problem.line)
        if ODD_BLANK_PATTERN.search(problem.word):
            corrected_line = line_text.replace(
                problem.word, ODD_BLANK_PATTERN.sub(" ", problem.word), 1
            )
            yield Found(
                problem.line, problem.reason, corrected_line, sure=_is_readable(corrected_line)
            )
            continue
        without_dashes = problem.word.lstrip("-\u2010\u2011\u2012\u2013\u2014\u2212")
        corrected_line = line_text.replace(problem.word, f"--{without_dashes}", 1)
        yield Found(
            problem.line,
            problem.reason,
            corrected_line,
            sure=len(without_dashes) > 1 and _is_readable(corrected_line),
        )


@rule(
    "blanks-around-equals",
    "mistake",
    "blanks around = part an option from its value",
    _EVIDENCE_TEST,
    "takes the blanks out",
)
def blanks_around_equals(lint_case: Case) -> Iterator[Found]:
    for problem in _problems_of_rule("blanks-around-equals", lint_case):
        text = lint_case.script.at(problem.line)
        line = re.sub(r"(\s-{1,2}[\w-]+?)\s*=\s*(?=\S)", r"\1=", text, count=1)
        line = re.sub(r"(\s-[a-zA-Z])=", r"\1 ", line)
        yield Found(problem.line, problem.reason, line, sure=_is_readable(line))


def _is_readable(line: str) -> bool:
    """Return whether sbatch reads a line without complaint."""
    directives = read_directives([line])
    return bool(directives.given) and not directives.problems and not directives.unknown


@rule(
    "late-directive",
    "mistake",
    "a #SBATCH line below the first command, which Slurm does not read",
    "tests/outer/gpu/test_lint.py::test_what_the_silent_mistakes_do",
)
def late_directive(lint_case: Case) -> Iterator[Found]:
    script = lint_case.script
    if not script.first_command:
        return
    set_up_end = 0 if script.submits_jobs else _end_of_set_up(lint_case)
    for line_number in sorted(script.shell.comments):
        text = script.at(line_number)
        if line_number <= script.first_command or not text.startswith(DIRECTIVE_PREFIX):
            continue
        if has_placeholder(text):
            continue
        if (words_of(text[len(DIRECTIVE_PREFIX) :]) or [""])[0].startswith("-"):
            reason = "Slurm stops reading #SBATCH at the first command: this line does nothing"
            is_note = line_number > set_up_end and (bool(script.directives) or script.submits_jobs)
            yield Found(line_number, reason, level="better" if is_note else "mistake")


def _end_of_set_up(lint_case: Case) -> int:
    """Return the last line that may be above an option that is meant to count.

    A user who wants an option writes it above the work, which is the first program that srun,
    mpirun or python starts.
    """
    lines = [
        launch.last
        for launch in lint_case.launches
        if launch.may_train and (launch.by or launch.launcher != "program")
    ]
    return min(
        [*lines, max((command.last for command in lint_case.script.shell.commands), default=0)]
    )


@rule(
    "no-directive",
    "mistake",
    "a comment that looks like a #SBATCH line but is not one: # SBATCH, #SBACTH, #sbatch",
    "tests/outer/gpu/test_lint_shown.py::test_lookalikes_are_comments",
)
def no_directive(lint_case: Case) -> Iterator[Found]:
    script = lint_case.script
    active_options = {option.name for _, option in script.directives}
    last_line = script.first_command or len(script.lines) + 1
    for line_number, line_text in enumerate(script.lines[: last_line - 1], 1):
        match = _LOST_MARK_PATTERN.match(line_text)
        if (
            line_text.startswith(DIRECTIVE_PREFIX)
            or not match
            or not _is_misspelt_sbatch(match[1])
            or _SUBMIT_COMMENT(line_text)
        ):
            continue
        directive_line = f"{DIRECTIVE_PREFIX} {match[2]}"
        read_directive = read_directives([directive_line])
        if not read_directive.given or read_directive.problems or read_directive.unknown:
            continue
        corrected_line = f"{DIRECTIVE_PREFIX} {match[2]}"
        if match[1] == "SBATCH":
            if re.match(r"\s*##+SBATCH", line_text):
                continue  # a usual way to take a line out for a while
            if line_text.startswith("#") and active_options:
                repeated_options = {
                    option.name for _, option in read_directive.given
                } & active_options
                reason = "a comment: sbatch reads lines that begin with #SBATCH, without blanks"
                if not repeated_options:
                    yield Found(line_number, reason, corrected_line, level="better")
                continue
            reason = (
                "sbatch reads only lines that begin with #SBATCH, without blanks before or in it"
            )
        elif {option.name for _, option in read_directive.given} <= active_options:
            continue  # another line has it correctly
        else:
            reason = f"#{match[1]} is not #SBATCH: the line does nothing"
        yield Found(line_number, reason, corrected_line)
    yield from _find_lost_directives(lint_case)


def _find_lost_directives(lint_case: Case) -> Iterator[Found]:
    """Find options without #SBATCH before them, whose lines a shell takes for commands."""
    script = lint_case.script
    first_command = script.first_command
    command_lines = {
        command.line for command in script.shell.commands if command.words[:1] == ("SBATCH",)
    }
    if script.at(first_command).lstrip().startswith("-") and script.at(
        first_command - 1
    ).startswith(DIRECTIVE_PREFIX):
        command_lines.add(first_command)
    for line_number in sorted(command_lines):
        line_text = script.at(line_number).strip()
        corrected_line = f"{DIRECTIVE_PREFIX} {line_text.removeprefix('SBATCH').strip()}"
        if _is_readable(corrected_line):
            reason = (
                f"without #SBATCH before it this is a command: there is no {line_text.split()[0]}"
            )
            yield Found(line_number, reason, corrected_line)


#: The form in which a comment shows how to submit the script: # sbatch --array=1-4 \
_SUBMIT_COMMENT = re.compile(r"\s*#+(\s+sbatch\s|\s*sbatch\s.*\\$)").match


def _is_misspelt_sbatch(word: str) -> bool:
    if word.upper() == "SBATCH":
        return True
    return (word.isupper() and sorted(word) == sorted("SBATCH")) or word.upper() in {
        "SBATH", "SBACH", "SBATC", "SBTCH", "SATCH", "SBBATCH", "SBATCHH", "SBATTCH",
    }  # fmt: skip


@rule(
    "option-this-slurm-lacks",
    "mistake",
    "an option that came later than the site's Slurm, or went before it",
    _SBATCH_MANUAL_URL,
)
def option_this_slurm_lacks(lint_case: Case) -> Iterator[Found]:
    from podwright.gpu.requests import OPTIONS

    version = lint_case.site.version
    if version is None:
        return
    site_release = f"{version[0]}.{version[1]:02}"
    for line_number, given_option in lint_case.script.directives:
        option = next(
            candidate
            for candidate in OPTIONS
            if candidate.name == given_option.name and "b" in candidate.commands
        )
        if given_option.name in lint_case.site.options:
            continue
        if option.since > version:
            since_release = f"{option.since[0]}.{option.since[1]:02}"
            reason = (
                f"--{given_option.name} came with Slurm {since_release}; this is {site_release}, "
                "which refuses the job"
            )
            yield Found(line_number, reason)
        elif option.until <= version:
            until_release = f"{option.until[0]}.{option.until[1]:02}"
            yield Found(line_number, f"--{given_option.name} is gone since Slurm {until_release}")
