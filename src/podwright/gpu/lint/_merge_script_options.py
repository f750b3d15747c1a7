"""A request as a job script and the command line make it together."""

from __future__ import annotations

from pathlib import Path

from podwright.errors import InvalidRequest
from podwright.gpu.lint._script import read_script
from podwright.gpu.requests import SlurmRequest, other_parts, parse_options, read_request


def scripted_request(arguments: list[str], command: str, script_file: str) -> SlurmRequest:
    """Return the options of a job script, overridden by those of the words.

    command: sbatch, salloc or srun. Raises InvalidRequest.
    """
    given_options, remaining_arguments = parse_options(arguments, command)
    given_options += other_parts(remaining_arguments)
    try:
        script_text = Path(script_file).read_text(errors="replace")
    except OSError as error:
        raise InvalidRequest(f"{script_file}: {error.strerror or error}") from error
    script = read_script(script_text)
    for problem in (*script.problems, *script.unknown):
        raise InvalidRequest(f"{script_file}:{problem.line}: {problem.reason}")
    if script.parts > 1:
        raise InvalidRequest(f"{script_file}: parts of a heterogeneous job cannot be explained")
    script_options = [option for _, option in script.directives]
    given_names = {option.name for option in given_options}
    remaining_options = [option for option in script_options if option.name not in given_names]
    return read_request(remaining_options + given_options, command)
