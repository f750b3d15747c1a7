"""Rehearses a change of Slurm's files, or of its release, with the jobs that users really submit.

`from_sacct` and `from_scripts` read submissions, `rehearse` asks two twins of the controller about
each, and `differences` compares the answers. The cluster itself is not changed.
"""

from podwright.gpu.rehearse._compare_answers import AnswerChange, AnswerPair, differences
from podwright.gpu.rehearse._file_changes_seen import (
    broken_lines,
    changed_files,
    twins_are_equal,
    unseen_changes,
)
from podwright.gpu.rehearse._rehearsal_report import as_json, as_text
from podwright.gpu.rehearse._rehearsal_sides import find_sides
from podwright.gpu.rehearse._rehearse import Rehearsal, Side, rehearse, settled
from podwright.gpu.rehearse._submissions import (
    LIST_JOBS,
    Submissions,
    from_sacct,
    from_scripts,
    limited,
    recent,
)

__all__ = [
    "LIST_JOBS",
    "AnswerChange",
    "AnswerPair",
    "Rehearsal",
    "Side",
    "Submissions",
    "as_json",
    "as_text",
    "broken_lines",
    "changed_files",
    "differences",
    "find_sides",
    "from_sacct",
    "from_scripts",
    "limited",
    "recent",
    "rehearse",
    "settled",
    "twins_are_equal",
    "unseen_changes",
]
