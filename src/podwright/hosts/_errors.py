"""The errors of this floor.

HostsError
├── BadHostList     a list or file of hosts cannot be read; the message says where and why
├── NoKey           there is no key to distribute, and none can be made (`_keys`)
└── MungeError      MUNGE is absent, or does not accept a credential (`_munge`)
"""

from __future__ import annotations


class HostsError(ValueError):
    """The base of this floor's refusals."""


class BadHostList(HostsError):
    """A list of hosts that cannot be read."""
