"""Rehearses a change of Slurm's files, or of its release, with the jobs that users really submit.

`from_sacct` and `from_scripts` read submissions, `rehearse` asks two twins of the controller about
each, and `differences` compares the answers. The cluster itself is not changed.
"""

from ._compare_answers import AnswerChange as AnswerChange
from ._compare_answers import AnswerPair as AnswerPair
from ._compare_answers import differences as differences
from ._file_changes_seen import broken_lines as broken_lines
from ._file_changes_seen import changed_files as changed_files
from ._file_changes_seen import twins_are_equal as twins_are_equal
from ._file_changes_seen import unseen_changes as unseen_changes
from ._rehearsal_report import as_json as as_json
from ._rehearsal_report import as_text as as_text
from ._rehearsal_sides import find_sides as find_sides
from ._rehearse import Rehearsal as Rehearsal
from ._rehearse import Side as Side
from ._rehearse import rehearse as rehearse
from ._rehearse import settled as settled
from ._submissions import LIST_JOBS as LIST_JOBS
from ._submissions import Submissions as Submissions
from ._submissions import from_sacct as from_sacct
from ._submissions import from_scripts as from_scripts
from ._submissions import limited as limited
from ._submissions import recent as recent
