"""What can go wrong with a launch, beside what the server refuses.

PodwrightError
├── LaunchFailed        the launch did not end well
│   └── InstanceFailed  a function did not return, and its exception cannot come home as it is
├── PythonMismatch      a host has another Python than the function was sent from
└── NotPicklable        a function, or what it is called with, cannot be sent
"""

from __future__ import annotations

from podwright.wire import InvalidRequest, PodwrightError


class LaunchFailed(PodwrightError):
    """The launch did not end well. `data`: `exit_code`, poprun's, and `log`, its last words."""


class InstanceFailed(LaunchFailed):
    """A function did not return. `data`: `instance`, `host`, `type`, `traceback`."""


class PythonMismatch(PodwrightError):
    """Two Pythons that do not read each other's functions. `data`: `host`, `here`, `there`."""

    exit_code = 69


class NotPicklable(InvalidRequest):
    """What should travel cannot: a lock, an open file, a connection."""
