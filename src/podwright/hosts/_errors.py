"""What can be wrong with what this floor is told.

HostsError
├── BadHostList     a list or file of hosts that cannot be read; the text says where and why
├── NoKey           no key to distribute is there, or can be made (`_keys`)
└── MungeError      MUNGE is absent, or believes no such credential (`_munge`)
"""

from __future__ import annotations


class HostsError(ValueError):
    """Base of this floor's refusals."""


class BadHostList(HostsError):
    """A list of hosts that cannot be read."""
