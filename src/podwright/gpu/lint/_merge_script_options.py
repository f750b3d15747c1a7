"""A request as a job script and the command line make it together."""

from __future__ import annotations

from pathlib import Path

from podwright.errors import InvalidRequest
from podwright.gpu.lint._script import Script, read_script
from podwright.gpu.requests import (
    Given,
    SlurmRequest,
    may_be_a_plugins,
    other_parts,
    parse_options,
    read_request,
)


def scripted_request(arguments: list[str], command: str, script_file: str) -> SlurmRequest:
    """Return the options of a job script, overridden by those of the words.

    command: sbatch, salloc or srun. Raises InvalidRequest.
    """
    given_options, remaining_arguments = parse_options(arguments, command, of_plugins=True)
    given_options += other_parts(remaining_arguments)
    try:
        script_text = Path(script_file).read_text(errors="replace")
    except OSError as error:
        raise InvalidRequest(f"{script_file}: {error.strerror or error}") from error
    from_script = script_options(read_script(script_text), f"{script_file}:")
    given_names = {option.name for option in given_options}
    remaining_options = [option for option in from_script if option.name not in given_names]
    return read_request(remaining_options + given_options, command)


def script_options(script: Script, where: str = "") -> list[Given]:
    """Return the options of a script's #SBATCH lines, those that only a plugin can have among them.

    where: what stands before a line's number in an error; empty: the error names no line. Raises
    InvalidRequest for what sbatch refuses, and for a heterogeneous job.
    """
    of_plugins: list[Given] = []
    for problem in (*script.problems, *script.unknown):
        name, _, value = problem.word.removeprefix("--").partition("=")
        if problem in script.problems or not may_be_a_plugins(name, "sbatch"):
            raise InvalidRequest((f"{where}{problem.line}: " if where else "") + problem.reason)
        of_plugins.append(Given(name, value, problem.word))
    if script.parts > 1:
        raise InvalidRequest(f"{where} parts of a heterogeneous job are not looked at".strip())
    return [*(option for _, option in script.directives), *of_plugins]
