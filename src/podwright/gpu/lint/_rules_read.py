"""Rules about whether sbatch can read the file, its #SBATCH lines, and their words."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podwright.gpu.lint._directives import (
    LOST_SHEBANG,
    MAGIC,
    ODD_BLANK,
    Problem,
    left_open,
    read_directives,
    words_of,
)
from podwright.gpu.lint._option_values import FIXED_WORDS
from podwright.gpu.lint._rule import Case, Found, Level, rule
from podwright.gpu.requests import is_number, known

_SHOWN_BY = "tests/outer/gpu/test_lint.py::test_slurm_refuses_what_lint_says_it_refuses"
_MAN = "https://slurm.schedmd.com/sbatch.html"
_BOM = "\ufeff"
_GRES = re.compile(r"(--gres[= ]|--gpus[\w-]*[= ])(gpu:)?(\S+)")
_WORD = re.compile(r"^\s*#+\s*([A-Za-z]{5,7})[\s:]*(--?[a-zA-Z].*)$")
# A word in capitals, within any marks, in the place of a number or an option: @NODES, N.
_TO_FILL = re.compile(r"(?:^|[=:\s])([A-Z*]+|x+|[^a-z\s]*[A-Z_]{2,}[^a-z\s]*|[A-Za-z_]+)$")


@rule(
    "dos-line-breaks",
    "mistake",
    "lines end as on DOS (CRLF), and sbatch refuses the script",
    _SHOWN_BY,
    "takes the carriage returns out",
)
def dos_line_breaks(case: Case) -> Iterator[Found]:
    text = case.script.text
    if "\r\n" in text:
        line = text[: text.index("\r\n")].count("\n") + 1
        yield Found(
            line,
            "lines end with CRLF: sbatch refuses the script",
            sure=True,
            whole=text.replace("\r\n", "\n"),
        )


@rule(
    "no-shebang",
    "mistake",
    "the first two bytes are not #!, and sbatch refuses the script",
    _SHOWN_BY,
    "moves the shebang to the top, or writes #!/bin/bash",
)
def no_shebang(case: Case) -> Iterator[Found]:
    script = case.script
    if not script.text.strip():
        yield Found(1, "there is nothing in the script: sbatch refuses it")
        return
    if "\0" in script.text:
        line = script.text[: script.text.index("\0")].count("\n") + 1
        wide = "#\0" in script.text[:6] or script.text.startswith(("\udcff\udcfe", "\udcfe\udcff"))
        problem = "this is text in UTF-16" if wide else "a NUL character is in this line"
        yield Found(line, f"{problem}: sbatch refuses the script")
        return
    if script.text.startswith("#!"):
        return
    reason = "the script does not begin with #!: sbatch refuses it"
    if script.text.startswith(_BOM + "#!"):
        reason = "a byte-order mark stands before #!: sbatch refuses the script"
        yield Found(1, reason, sure=True, whole=script.text.removeprefix(_BOM))
        return
    later = next((n for n, line in enumerate(script.lines) if line.strip()), 0)
    if script.lines[later].startswith("#!"):
        lines = script.text.split("\n")
        moved = [lines[later], *lines[:later], *lines[later + 1 :]]
        yield Found(1, reason, sure=True, whole="\n".join(moved))
        return
    if re.match(r"#\s+!\s*/", script.lines[0]):
        right = "#!" + script.lines[0].partition("!")[2].strip()
        yield Found(1, reason, right, sure=True)
        return
    if LOST_SHEBANG.match(script.lines[0]):
        yield Found(1, reason, "#!" + script.lines[0].lstrip("! \t").rstrip(), sure=True)
        return
    hidden = re.match(r"#!?/\S*/(ba|z|k|da)?sh\b", script.lines[0])
    sure = (
        bool(script.directives)
        and not hidden
        and not any(line.startswith("#!") for line in script.lines)
    )
    level: Level = (
        "mistake" if script.first_command else "better"
    )  # options alone, without a script: a part of one
    yield Found(1, reason, "#!/bin/bash", sure=sure, before=True, level=level)


@rule(
    "template",
    "better",
    "values are left to be filled in, and what hangs on them is not judged; where sbatch refuses "
    "such a line as it stands, a mistake",
    _SHOWN_BY,
)
def template(case: Case) -> Iterator[Found]:
    script = case.script
    if script.refused and not script.for_a_program and not script.prose:
        reason = "a value is to be filled in here, and sbatch refuses the line as it stands"
        yield Found(script.refused.line, reason, level="mistake")
    elif line := script.template:
        yield Found(line, "a value is to be filled in here: what hangs on it is not judged")


def _problem(kind: str, case: Case) -> Iterator[Problem]:
    yield from (problem for problem in case.script.problems if problem.kind == kind)


@rule(
    "gres-order",
    "mistake",
    "GRES are written name:type:count; in another order sbatch refuses the job",
    _SHOWN_BY,
    "puts one type before the count",
)
def gres_order(case: Case) -> Iterator[Found]:
    for problem in _problem("bad-value", case):
        ordered = _ordered(case.script.at(problem.line))
        if ordered:
            right, sure = ordered
            reason = f"GRES are written name:type:count, with one type: {problem.reason}"
            yield Found(problem.line, reason, right, sure=sure)


def _ordered(text: str) -> tuple[str, bool] | None:
    """Return the line with type and count in order, and whether there was one type."""
    match = _GRES.search(text)
    words = match[3].split(":") if match else []
    counts = [part for part in words if is_number(part)]
    kinds = [part for part in words if part and re.fullmatch(r"[A-Za-z]\w*", part)]
    if not match or len(counts) != 1 or not kinds or len(counts) + len(kinds) != len(words):
        return None
    right = f"{match[1]}{match[2] or ''}{kinds[-1]}:{counts[0]}"
    if right == match[0]:
        return None
    return text[: match.start()] + right + text[match.end() :], len(kinds) == 1


@rule(
    "unknown-option",
    "mistake",
    "sbatch has no such option and refuses the script. What may be a plugin's is told as what "
    "could be better, unless the site's own `sbatch --help` is known",
    _SHOWN_BY,
    "writes - for _ in an option's name, and --chdir for --workdir",
)
def unknown_option(case: Case) -> Iterator[Found]:
    script, options = case.script, case.site.options
    for problem in (*_problem("unknown-option", case), *script.unknown):
        name = problem.word.lstrip("-").partition("=")[0]
        if name in options:
            continue
        text = script.at(problem.line)
        near = problem.near.partition("=")[0]
        old = problem.word.partition("=")[0]
        right = text.replace(old, near, 1) if near else ""
        sure = bool(near) and "--" + name.replace("_", "-") == near and "_" in name
        several = [option for option in known("sbatch") if option.startswith(name)]
        if problem.renamed:
            reason = problem.reason
            sure = problem.word.endswith(name) or near == "--chdir"
        elif len(several) > 1 and len(name) > 1:
            right = ""
            reason = f"--{name} may be " + " or ".join(f"--{option}" for option in several[:4])
        else:
            reason = problem.reason + (f": {near} is meant?" if near else "")
        certain = problem.word[1:2] != "-" or bool(near or options or len(several) > 1)
        if not certain:
            reason += "; a plugin of the site may have it"
        yield Found(
            problem.line, reason, right, sure=sure, level="mistake" if certain else "better"
        )


@rule(
    "bad-value",
    "mistake",
    "a value that sbatch cannot read, and refuses",
    "tests/outer/gpu/test_lint_values.py::test_values_are_read_as_sbatch_reads_them",
)
def bad_value(case: Case) -> Iterator[Found]:
    for problem in _problem("bad-value", case):
        text = case.script.at(problem.line)
        if _ordered(text):
            continue
        near = problem.near.partition("=")[0]
        right = text.replace(problem.word, f"-{problem.word}", 1) if near else ""
        hint = f" ({near} has two dashes)" if near else ""
        named = problem.word.lstrip("-").partition("=")[0] in FIXED_WORDS
        left = not named and problem.word.startswith("-") and _TO_FILL.search(problem.word)
        level: Level = "better" if left else "mistake"
        yield Found(problem.line, problem.reason + hint, right, level=level)


@rule(
    "stray-word",
    "mistake",
    "a word that belongs to no option, for which sbatch refuses the script",
    _SHOWN_BY,
)
def stray_word(case: Case) -> Iterator[Found]:
    for problem in _problem("stray-word", case):
        left = re.fullmatch(r"\W*(?![KMGT]i?B?$)[A-Z_]{2,}\W*", problem.word)
        yield Found(problem.line, problem.reason, level="better" if left else "mistake")


@rule(
    "typographic-dash",
    "mistake",
    "a dash or a blank as word processors and web pages write it, in place of the keyboard's",
    _SHOWN_BY,
    "writes hyphens and blanks",
)
def typographic_dash(case: Case) -> Iterator[Found]:
    for problem in _problem("typographic-dash", case):
        text = case.script.at(problem.line)
        if ODD_BLANK.search(problem.word):
            right = text.replace(problem.word, ODD_BLANK.sub(" ", problem.word), 1)
            yield Found(problem.line, problem.reason, right, sure=_reads(right))
            continue
        without_dashes = problem.word.lstrip("-\u2010\u2011\u2012\u2013\u2014\u2212")
        right = text.replace(problem.word, f"--{without_dashes}", 1)
        yield Found(
            problem.line, problem.reason, right, sure=len(without_dashes) > 1 and _reads(right)
        )


@rule(
    "blanks-around-equals",
    "mistake",
    "blanks around = part an option from its value",
    _SHOWN_BY,
    "takes the blanks out",
)
def blanks_around_equals(case: Case) -> Iterator[Found]:
    for problem in _problem("blanks-around-equals", case):
        text = case.script.at(problem.line)
        right = re.sub(r"(\s-{1,2}[\w-]+?)\s*=\s*(?=\S)", r"\1=", text, count=1)
        right = re.sub(r"(\s-[a-zA-Z])=", r"\1 ", right)
        yield Found(problem.line, problem.reason, right, sure=_reads(right))


def _reads(line: str) -> bool:
    """Return whether sbatch reads a line without complaint."""
    directives = read_directives([line])
    return bool(directives.given) and not directives.problems and not directives.unknown


@rule(
    "late-directive",
    "mistake",
    "a #SBATCH line below the first command, which Slurm does not read",
    "tests/outer/gpu/test_lint.py::test_what_the_silent_mistakes_do",
)
def late_directive(case: Case) -> Iterator[Found]:
    script = case.script
    if not script.first_command:
        return
    end = 0 if script.submits else _end_of_set_up(case)
    for number in sorted(script.shell.comments):
        text = script.at(number)
        if number <= script.first_command or not text.startswith(MAGIC):
            continue
        if left_open(text):
            continue
        if (words_of(text[len(MAGIC) :]) or [""])[0].startswith("-"):
            reason = "Slurm stops reading #SBATCH at the first command: this line does nothing"
            notes = number > end and (bool(script.directives) or script.submits)
            yield Found(number, reason, level="better" if notes else "mistake")


def _end_of_set_up(case: Case) -> int:
    """Return the last line that may be above an option that is meant to count.

    A user who wants an option writes it above the work, which is the first program that srun,
    mpirun or python starts.
    """
    work = [launch.last for launch in case.script.launches if launch.by or launch.kind != "other"]
    return min([*work, max((command.last for command in case.script.shell.commands), default=0)])


@rule(
    "no-directive",
    "mistake",
    "a comment that looks like a #SBATCH line but is not one: # SBATCH, #SBACTH, #sbatch",
    "tests/outer/gpu/test_lint_shown.py::test_lookalikes_are_comments",
)
def no_directive(case: Case) -> Iterator[Found]:
    script = case.script
    active = {given.name for _, given in script.directives}
    last = script.first_command or len(script.lines) + 1
    for number, text in enumerate(script.lines[: last - 1], 1):
        match = _WORD.match(text)
        if text.startswith(MAGIC) or not match or not _near_magic(match[1]) or _SHOWN_CALL(text):
            continue
        line = f"{MAGIC} {match[2]}"
        read = read_directives([line])
        if not read.given or read.problems or read.unknown:
            continue
        right = f"{MAGIC} {match[2]}"
        if match[1] == "SBATCH":
            if re.match(r"\s*##+SBATCH", text):
                continue  # a usual way to take a line out for a while
            if text.startswith("#") and active:
                corrected = {given.name for _, given in read.given} & active
                reason = "a comment: sbatch reads lines that begin with #SBATCH, without blanks"
                if not corrected:
                    yield Found(number, reason, right, level="better")
                continue
            reason = (
                "sbatch reads only lines that begin with #SBATCH, without blanks before or in it"
            )
        elif {given.name for _, given in read.given} <= active:
            continue  # another line has it correctly
        else:
            reason = f"#{match[1]} is not #SBATCH: the line does nothing"
        yield Found(number, reason, right)
    yield from _lost_marks(case)


def _lost_marks(case: Case) -> Iterator[Found]:
    """Find options without #SBATCH before them, whose lines a shell takes for commands."""
    script = case.script
    first = script.first_command
    lost = {command.line for command in script.shell.commands if command.words[:1] == ("SBATCH",)}
    if script.at(first).lstrip().startswith("-") and script.at(first - 1).startswith(MAGIC):
        lost.add(first)
    for number in sorted(lost):
        line = script.at(number).strip()
        right = f"{MAGIC} {line.removeprefix('SBATCH').strip()}"
        if _reads(right):
            reason = f"without #SBATCH before it this is a command: there is no {line.split()[0]}"
            yield Found(number, reason, right)


#: The form in which a comment shows how to submit the script: # sbatch --array=1-4 \
_SHOWN_CALL = re.compile(r"\s*#+(\s+sbatch\s|\s*sbatch\s.*\\$)").match


def _near_magic(word: str) -> bool:
    if word.upper() == "SBATCH":
        return True
    return (word.isupper() and sorted(word) == sorted("SBATCH")) or word.upper() in {
        "SBATH", "SBACH", "SBATC", "SBTCH", "SATCH", "SBBATCH", "SBATCHH", "SBATTCH",
    }  # fmt: skip


@rule(
    "option-this-slurm-lacks",
    "mistake",
    "an option that came later than the site's Slurm, or went before it",
    _MAN,
)
def option_this_slurm_lacks(case: Case) -> Iterator[Found]:
    from podwright.gpu.requests import OPTIONS

    version = case.site.version
    if version is None:
        return
    release = f"{version[0]}.{version[1]:02}"
    for number, given in case.script.directives:
        option = next(
            candidate
            for candidate in OPTIONS
            if candidate.name == given.name and "b" in candidate.commands
        )
        if given.name in case.site.options:
            continue
        if option.since > version:
            since = f"{option.since[0]}.{option.since[1]:02}"
            reason = (
                f"--{given.name} came with Slurm {since}; this is {release}, which refuses the job"
            )
            yield Found(number, reason)
        elif option.until <= version:
            until = f"{option.until[0]}.{option.until[1]:02}"
            yield Found(number, f"--{given.name} is gone since Slurm {until}")
