"""Sets a site's Slurm up, and takes it back."""

from podwright.slurm.pods.setup._build import build
from podwright.slurm.pods.setup._checks import promises
from podwright.slurm.pods.setup._native import NativePlaces, native, slurm_user, undo, window
from podwright.slurm.pods.setup._pod_survey import mapping, shared, shelf, survey
from podwright.slurm.pods.setup._reachability import (
    check_server,
    far_door,
    munge_socket,
    server_host,
    without_munge,
)

__all__ = [
    "NativePlaces",
    "build",
    "check_server",
    "far_door",
    "mapping",
    "munge_socket",
    "native",
    "promises",
    "server_host",
    "shared",
    "shelf",
    "slurm_user",
    "survey",
    "undo",
    "window",
    "without_munge",
]
