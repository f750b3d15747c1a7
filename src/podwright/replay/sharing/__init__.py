"""Guests that share a pod: replayed together, beside each alone on a part of the pod.

The server's own queue decides between them (`controller.PodRehearsal`), so this package loads the
controller. The door of `replay` does not load it.
"""

from podwright.replay.sharing._compare_shared_split import check_names, compare
from podwright.replay.sharing._shared_guest import SLURM, SharedGuest

__all__ = ["SLURM", "SharedGuest", "check_names", "compare"]
