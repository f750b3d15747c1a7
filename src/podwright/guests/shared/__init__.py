"""What any scheduler needs that lives beside the controller: a guest.

A guest (Slurm, say) decides which job starts and when it is over. The controller decides which
devices there are and owns every partition. Between the two stands what this room has:

- who holds which block for which job (`Book`), rebuilt from the server's partitions at any time;
- room for a large job that small ones would pass for ever (`Room`); a block that is emptied by
  moves is closed for it as well, and so is where they go (`Book.empty`);
- the sweep: the guest's own list of jobs against the book, for what was missed (`sweep`);
- one thing at a time for a job (`Locks`), and a wait for what others give back (`Freed`);
- what is repeated until the server, or the scheduler, answers (`until_done`);
- how often a start may fail before a job is held, in words that are the record (`FailedStart`).

What a guest must say about its jobs is `Guest`. No module here knows any guest.
"""

from ._block_holdings import Book as Book
from ._block_holdings import Holding as Holding
from ._device_positions import PodPlaces as PodPlaces
from ._failed_start_limit import HELD as HELD
from ._failed_start_limit import FailedStart as FailedStart
from ._failed_start_limit import attempts as attempts
from ._failed_start_limit import failed as failed
from ._guest_interface import Guest as Guest
from ._job_locks import Freed as Freed
from ._job_locks import Locks as Locks
from ._job_naming import JobNaming as JobNaming
from ._job_naming import Waits as Waits
from ._job_naming import first_in_line as first_in_line
from ._large_job_room import Room as Room
from ._retries import until_done as until_done
from ._sweep_ended_jobs import sweep as sweep
from ._vipu_server_client import CALL_TIMEOUT as CALL_TIMEOUT
from ._vipu_server_client import GuestServer as GuestServer
from ._vipu_server_client import ThreadedServer as ThreadedServer
