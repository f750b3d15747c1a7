"""The only owner of state: partitions, leases, and bringing machines in line with them."""

from podwright.controller._administration import Machines
from podwright.controller._caller import Caller, Role
from podwright.controller._controller import Controller
from podwright.controller._discovery import Discovery
from podwright.controller._own_host import Here
from podwright.controller._privacy import Visible, private_kinds
from podwright.controller._rights import RIGHTS, May, Rights, rights_page
from podwright.controller._users import first_user

__all__ = [
    "RIGHTS",
    "Caller",
    "Controller",
    "Discovery",
    "Here",
    "Machines",
    "May",
    "Rights",
    "Role",
    "Visible",
    "first_user",
    "private_kinds",
    "rights_page",
]
