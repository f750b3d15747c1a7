"""A request as a job script and the command line make it together."""

from __future__ import annotations

from pathlib import Path

from podwright.errors import InvalidRequest
from podwright.gpu.lint._script import read_script
from podwright.gpu.requests import SlurmRequest, other_parts, parse_options, read_request


def scripted_request(words: list[str], command: str, script_file: str) -> SlurmRequest:
    """Return the options of a job script, overridden by those of the words.

    command: sbatch, salloc or srun. Raises InvalidRequest.
    """
    given, rest_of_line = parse_options(words, command)
    given += other_parts(rest_of_line)
    try:
        text = Path(script_file).read_text(errors="replace")
    except OSError as error:
        raise InvalidRequest(f"{script_file}: {error.strerror or error}") from error
    script = read_script(text)
    for problem in (*script.problems, *script.unknown):
        raise InvalidRequest(f"{script_file}:{problem.line}: {problem.reason}")
    if script.parts > 1:
        raise InvalidRequest(f"{script_file}: parts of a heterogeneous job cannot be explained")
    before = [directive for _, directive in script.directives]
    names = {directive.name for directive in given}
    rest = [directive for directive in before if directive.name not in names]
    return read_request(rest + given, command)
