"""The only owner of state: partitions, leases, and bringing machines in line with them."""

from podwright.controller._administration import Machines
from podwright.controller._caller import Caller, Role
from podwright.controller._controller import Controller
from podwright.controller._discovery import Discovery
from podwright.controller._own_host import Here
from podwright.controller._privacy import Visible, private_kinds
from podwright.controller._users import first_user

__all__ = [
    "Caller",
    "Controller",
    "Discovery",
    "Here",
    "Machines",
    "Role",
    "Visible",
    "first_user",
    "private_kinds",
]
