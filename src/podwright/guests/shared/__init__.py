"""What any scheduler needs that lives beside the controller: a guest.

A guest (Slurm, say) decides which job starts and when it is over. The controller decides which
devices there are and owns every partition. Between the two stands what this room has:

- who holds which block for which job (`Book`), rebuilt from the server's partitions at any time;
- room for a large job that small ones would pass for ever (`Room`); a block that is emptied by
  moves is closed for it as well, and so is where they go (`Book.empty`);
- one thing at a time for a job (`Locks`), and a wait for what others give back (`Freed`);
- what is repeated until the server, or the scheduler, answers (`until_done`).

No module here knows any guest.
"""

from ._block_holdings import Book as Book
from ._block_holdings import Holding as Holding
from ._device_positions import PodPlaces as PodPlaces
from ._job_locks import Freed as Freed
from ._job_locks import Locks as Locks
from ._job_naming import JobNaming as JobNaming
from ._job_naming import Waits as Waits
from ._job_naming import first_in_line as first_in_line
from ._large_job_room import Room as Room
from ._retries import until_done as until_done
from ._vipu_server_client import CALL_TIMEOUT as CALL_TIMEOUT
from ._vipu_server_client import GuestServer as GuestServer
from ._vipu_server_client import ThreadedServer as ThreadedServer
