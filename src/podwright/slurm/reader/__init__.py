"""One typed reader of what Slurm prints: nodes, partitions, jobs, reservations, configuration.

Each fact is a property. A fact that Slurm does not show raises `FieldNotKnown`, which names the
field: there are no defaults. So a field that a release renames has to be changed in this package
alone. A twin also takes over settings that are not read here, by the keys of slurm.conf
(`slurm.twin._site_conf`).
"""

from podwright.errors import FieldNotKnown
from podwright.hosts import NetworkSwitch, read_switches
from podwright.slurm.reader._job_fields import JobRecord, JobUser, read_jobs
from podwright.slurm.reader._node import (
    GresGpus,
    NodeState,
    SlurmNode,
    gpu_types,
    node_state,
    read_counts,
    read_gpus,
    read_nodes,
)
from podwright.slurm.reader._partition_fields import SlurmPartitionRecord, read_partitions
from podwright.slurm.reader._recognise_output import kind_of_output
from podwright.slurm.reader._reservations_licences import (
    LicenceRecord,
    ReservationRecord,
    read_licences,
    read_reservations,
)
from podwright.slurm.reader._sacct_sinfo_columns import (
    CUT,
    accounting_columns,
    accounting_command,
    accounting_format,
    node_listing_command,
    read_accounting,
    read_node_listing,
)
from podwright.slurm.reader._scontrol_records import known, one_line_each
from podwright.slurm.reader._slurm_config import SlurmConfig, release_note
from podwright.slurm.reader._squeue_columns import listing_format, read_listing, squeue_text

#: The commands whose output is read here.
SHOW_CONFIG = ("scontrol", "show", "config")
SHOW_NODES = ("scontrol", "--oneliner", "show", "node")
SHOW_PARTITIONS = ("scontrol", "--oneliner", "show", "partition")
SHOW_JOBS = ("scontrol", "--details", "--oneliner", "show", "job")
SHOW_RESERVATIONS = ("scontrol", "--oneliner", "show", "reservation")
SHOW_LICENCES = ("scontrol", "--oneliner", "show", "licenses")
SHOW_TOPOLOGY = ("scontrol", "show", "topology")

__all__ = [
    "CUT",
    "SHOW_CONFIG",
    "SHOW_JOBS",
    "SHOW_LICENCES",
    "SHOW_NODES",
    "SHOW_PARTITIONS",
    "SHOW_RESERVATIONS",
    "SHOW_TOPOLOGY",
    "FieldNotKnown",
    "GresGpus",
    "JobRecord",
    "JobUser",
    "LicenceRecord",
    "NetworkSwitch",
    "NodeState",
    "ReservationRecord",
    "SlurmConfig",
    "SlurmNode",
    "SlurmPartitionRecord",
    "accounting_columns",
    "accounting_command",
    "accounting_format",
    "gpu_types",
    "kind_of_output",
    "known",
    "listing_format",
    "node_listing_command",
    "node_state",
    "one_line_each",
    "read_accounting",
    "read_counts",
    "read_gpus",
    "read_jobs",
    "read_licences",
    "read_listing",
    "read_node_listing",
    "read_nodes",
    "read_partitions",
    "read_reservations",
    "read_switches",
    "release_note",
    "squeue_text",
]
