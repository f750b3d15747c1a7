"""The controller: it alone owns partitions and leases, and makes machines agree with them."""

from ._controller import Controller as Controller
from ._controller_assembly import Machines as Machines
from ._pod_observer import PartitionFacts as PartitionFacts
from ._pod_observer import PodObserver as PodObserver
from ._store_check import ServedClusters as ServedClusters
from ._store_check import damaged as damaged
from ._store_check import find_faults as find_faults
from ._store_check import orphans as orphans
from ._store_references import Gravity as Gravity
from ._store_references import StoreFault as StoreFault
from .administration._audit import with_new_chains as with_new_chains
from .administration._privacy import Visible as Visible
from .administration._privacy import private_kinds as private_kinds
from .administration._users import first_user as first_user
from .hardware._discovery import Discovery as Discovery
from .queue._fair_share import weights_of as weights_of
from .state._caller import Caller as Caller
from .state._caller import Role as Role
from .state._own_host import OwnHost as OwnHost
