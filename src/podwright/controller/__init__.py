"""The only owner of state: partitions, leases, and bringing machines in line with them."""

from podwright.controller._caller import Caller, Role
from podwright.controller._controller import Controller

__all__ = ["Caller", "Controller", "Role"]
