"""The attempts of a job, a line each, in a file beside the job's output.

The next attempt, on other nodes, reads there which nodes were at fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from podwright.errors import InvalidRequest
from podwright.ground.tables import table


class JobAttempt(msgspec.Struct, frozen=True):
    """One start of a job. restarts: Slurm's count. code: the command's exit code; None if it was
    not started. cause: `hardware`, `program`, `not known`, or empty. without: nodes that the next
    attempt is not to get. left_out: what was not known. step: what followed.
    """

    restarts: int
    nodes: tuple[str, ...]
    code: int | None
    cause: str
    because: str
    source: str
    bad_nodes: tuple[str, ...]
    without: tuple[str, ...]
    left_out: tuple[str, ...]
    step: str


def history_path(job: str, folder: str) -> Path:
    """The file of a job. folder: where the job was submitted."""
    return Path(folder, f"slurm-{job}.retry.jsonl")


def read_history(path: Path) -> list[JobAttempt]:
    """The attempts in a file. Raises InvalidRequest."""
    try:
        lines = path.read_bytes().splitlines()
        return [msgspec.json.decode(line, type=JobAttempt) for line in lines]
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidRequest(
            f"{path}: {getattr(error, 'strerror', None) or error}",
            operation="read the attempts of a job",
            would_work="--history JOB, in the folder where the job was submitted",
        ) from None


def write_attempt(path: Path, attempt: JobAttempt) -> None:
    """Add an attempt. A job's first start forgets those of an older job with its number.

    Raises OSError.
    """
    with open(path, "ab" if attempt.restarts else "wb") as file:
        file.write(msgspec.json.encode(attempt) + b"\n")


def table_of_attempts(attempts: Sequence[JobAttempt]) -> str:
    """The attempts as a table."""
    rows = [
        (
            attempt.restarts + 1,
            ",".join(attempt.nodes),
            "" if attempt.code is None else attempt.code,
        )
        for attempt in attempts
    ]
    why = [(attempt.cause, attempt.because, attempt.source, attempt.step) for attempt in attempts]
    columns = ("Attempt", "Nodes", "Code", "Cause", "Because", "Source", "Then")
    return table(columns, [(*row, *words) for row, words in zip(rows, why, strict=True)])
