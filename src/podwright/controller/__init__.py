"""The controller: it alone owns partitions and leases, and makes machines agree with them."""

from podwright.controller._controller import Controller
from podwright.controller._controller_assembly import Machines
from podwright.controller._store_check import StoreFault, damaged, find_faults
from podwright.controller.administration._audit import with_new_chains
from podwright.controller.administration._privacy import Visible, private_kinds
from podwright.controller.administration._users import first_user
from podwright.controller.hardware._discovery import Discovery
from podwright.controller.queue._fair_share import weights_of
from podwright.controller.state._caller import Caller, Role
from podwright.controller.state._own_host import OwnHost

__all__ = [
    "Caller",
    "Controller",
    "Discovery",
    "Machines",
    "OwnHost",
    "Role",
    "StoreFault",
    "Visible",
    "damaged",
    "find_faults",
    "first_user",
    "private_kinds",
    "weights_of",
    "with_new_chains",
]
