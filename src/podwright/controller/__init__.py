"""The only owner of state: partitions, leases, and bringing machines in line with them."""

from podwright.controller._administration import Machines
from podwright.controller._caller import Caller, Role
from podwright.controller._controller import Controller
from podwright.controller._discovery import Discovery
from podwright.controller._users import first_user

__all__ = ["Caller", "Controller", "Discovery", "Machines", "Role", "first_user"]
