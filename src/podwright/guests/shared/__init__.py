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

from podwright.guests.shared._block_holdings import Book, Holding
from podwright.guests.shared._device_positions import PodPlaces
from podwright.guests.shared._failed_start_limit import HELD, FailedStart, attempts, failed
from podwright.guests.shared._guest_interface import Guest
from podwright.guests.shared._job_locks import Freed, Locks
from podwright.guests.shared._job_naming import JobNaming, Waits, first_in_line
from podwright.guests.shared._large_job_room import Room
from podwright.guests.shared._retries import until_done
from podwright.guests.shared._sweep_ended_jobs import sweep
from podwright.guests.shared._vipu_server_client import CALL_TIMEOUT, GuestServer, ThreadedServer

__all__ = [
    "CALL_TIMEOUT",
    "HELD",
    "Book",
    "FailedStart",
    "Freed",
    "Guest",
    "GuestServer",
    "Holding",
    "JobNaming",
    "Locks",
    "PodPlaces",
    "Room",
    "ThreadedServer",
    "Waits",
    "attempts",
    "failed",
    "first_in_line",
    "sweep",
    "until_done",
]
