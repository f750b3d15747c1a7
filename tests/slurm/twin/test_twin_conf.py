"""What of a site's files reaches a twin, and what never does."""

from __future__ import annotations

import pytest

from podwright.errors import FieldNotKnown, InvalidRequest
from podwright.hosts import expand_names, fold_names
from podwright.slurm.twin import SiteFiles
from podwright.slurm.twin._site_conf import read_site_conf
from podwright.slurm.twin._twin_conf import twin_conf
from podwright.slurm.twin._twin_gres_conf import gres_conf
from tests.slurm.reader import texts
from tests.slurm.twin.recorded import clusters, read_cluster

#: Keys of slurm.conf that scontrol shows of every node and partition, whatever release it is of.
NODE_KEYS = ("Boards", "CoresPerSocket", "RealMemory", "Sockets", "ThreadsPerCore", "TmpDisk")
PARTITION_KEYS = ("Nodes", "OverSubscribe", "PreemptMode", "PriorityTier", "State")

HOSTILE = r"""
ClusterName=science
SlurmctldHost=head.example.com(10.0.0.1)
AccountingStorageHost=db.example.com
AccountingStorageType=accounting_storage/slurmdbd
Prolog=/etc/slurm/prolog.sh
Epilog=/etc/slurm/epilog.sh
PrologSlurmctld=/etc/slurm/ctld.sh
JobCompType=jobcomp/script
JobCompLoc=/etc/slurm/done.sh
MailProg=/usr/bin/mail
ResumeProgram=/etc/slurm/resume.sh
BurstBufferType=burst_buffer/lua
JobSubmitPlugins=lua
UnkillableStepProgram=/etc/slurm/page.sh
HealthCheckProgram=/etc/slurm/health.sh
PlugStackConfig=/etc/slurm/plugstack.conf
PluginDir=/srv/plugins
SelectType=select/cons_tres
SelectTypeParameters=CR_CORE_MEMORY
SchedulerParameters=bf_interval=600,ignore_prefer_validation,defer
TaskPlugin=task/cgroup,task/affinity
NodeName=DEFAULT Sockets=2 CoresPerSocket=8 \
  ThreadsPerCore=1
NodeName=n[1-2] NodeAddr=10.0.0.[2-3] NodeHostname=x[1-2] Gres=gpu:h100:4 RealMemory=1000 # two
NodeName=n3 RealMemory=500 State=DOWN
PartitionName=main Nodes=n[1-3] Default=YES AllowQos=high QOS=high MaxTime=60
"""


def test_only_allowed_keys_reach_the_twin() -> None:
    text = twin_conf(SiteFiles(slurm_conf=HOSTILE), (26, 5)).files["etc/slurm.conf"]
    for word in ("example.com", "10.0.0", "/etc/slurm", "/srv", "slurmdbd", "jobcomp", "lua", "x["):
        assert word not in text
    assert "MailProg=/bin/true" in text
    assert "bf_interval=600" not in text
    assert "defer" not in text
    assert "ignore_prefer_validation" in text
    assert "SelectTypeParameters=CR_CORE_MEMORY" in text
    assert "TaskPlugin=task/affinity" in text
    assert "PartitionName=main Nodes=n[1-3] Default=YES MaxTime=60\n" in text


def test_each_node_has_a_line_with_a_port_of_its_own() -> None:
    conf = twin_conf(SiteFiles(slurm_conf=HOSTILE), (26, 5))
    assert conf.nodes == {"n1": 7000, "n2": 7001, "n3": 7002}
    assert conf.unused == ("n3",)
    assert (
        "NodeName=n2 NodeAddr=127.0.0.1 Port=7001 Sockets=2 CoresPerSocket=8 ThreadsPerCore=1 "
        "Gres=gpu:h100:4 RealMemory=1000 State=CLOUD"
    ) in conf.files["etc/slurm.conf"].splitlines()


def test_a_value_that_would_end_its_word_is_dropped() -> None:
    text = 'NodeName=n1 CPUs=4 Feature="a Prolog=/x"\nPartitionName=p Nodes=n1\n'
    conf = twin_conf(SiteFiles(slurm_conf=text), (26, 5)).files["etc/slurm.conf"]
    assert "/x" not in conf


def test_job_submit_runs_where_it_is_given_alone() -> None:
    site = SiteFiles(slurm_conf=HOSTILE, job_submit_lua="return slurm.SUCCESS")
    files = twin_conf(site, (26, 5)).files
    assert "JobSubmitPlugins=lua\n" in files["etc/slurm.conf"]
    assert files["etc/job_submit.lua"] == "return slurm.SUCCESS"


def test_what_scontrol_shows_ends_in_the_same_lines() -> None:
    site, _ = read_cluster(clusters("26.05.5")[0])
    lines = twin_conf(site, (26, 5)).files["etc/slurm.conf"].splitlines()
    (first,) = [line for line in lines if line.startswith("NodeName=n1 ")]
    assert "Gres=gpu:v100:2,gpu:h100:2 " in first
    assert " CPUs=" not in first  # as many as there are threads
    assert "DefMemPerGPU=200" in lines


@pytest.mark.parametrize("release", texts.RELEASES)
def test_a_field_that_a_release_renames_is_missed(release: str) -> None:
    """A name that `_site_conf` does not know is left out: the twin then has Slurm's default."""
    config, nodes, partitions = (
        texts.recorded(release, kind) for kind in ("config", "nodes", "partitions")
    )
    conf = read_site_conf(SiteFiles(config=config, nodes=nodes, partitions=partitions))
    for rows, keys in ((conf.nodes, NODE_KEYS), (conf.partitions, PARTITION_KEYS)):
        missing = {key for row in rows.values() for key in keys if key not in row}
        assert not missing, "another name in this release? _site_conf has to know it"


SHOWN = "NodeName=n1 CPUTot=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=500"


@pytest.mark.parametrize(
    ("state", "unused"),
    [
        ("IDLE+CLOUD+POWERED_DOWN", []),
        ("IDLE+DRAIN", ["n1"]),
        ("DOWN*+CLOUD+POWERED_DOWN", ["n1"]),
        ("IDLE+MAINTENANCE", ["n1"]),
    ],
)
def test_a_node_that_is_powered_down_can_be_used(state: str, unused: list[str]) -> None:
    """Slurm powers a node up for a job."""
    assert read_site_conf(SiteFiles(nodes=f"{SHOWN} State={state}")).unused == unused
    written = SiteFiles(slurm_conf=f"NodeName=n1 CPUs=4 State={state}")
    assert read_site_conf(written).unused == unused


@pytest.mark.parametrize(
    "field", ["CPUTot", "Sockets", "CoresPerSocket", "ThreadsPerCore", "RealMemory", "State"]
)
def test_a_node_whose_size_or_state_is_not_shown_is_not_known(field: str) -> None:
    shown = f"{SHOWN} State=IDLE".replace(f" {field}=", f" New{field}=")
    with pytest.raises(FieldNotKnown, match=f"not known: {field} "):
        read_site_conf(SiteFiles(nodes=shown))


def test_units_that_scontrol_adds_are_left_out() -> None:
    site = SiteFiles(
        config="OverTimeLimit            = 5 min\n",
        nodes=f"{SHOWN} State=IDLE",
    )
    lines = twin_conf(site, (26, 5)).files["etc/slurm.conf"].splitlines()
    assert "OverTimeLimit=5" in lines


def test_a_site_without_nodes_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no node"):
        twin_conf(SiteFiles(slurm_conf="ClusterName=x\n"), (26, 5))


NODE = {"Sockets": "2", "CoresPerSocket": "8", "Gres": "gpu:h100:4(S:0-1),shard:10"}


def test_detected_gpus_are_written_with_the_sockets_that_slurm_shows() -> None:
    text, devices = gres_conf("AutoDetect=nvml\n", {"n1": NODE}, "/run/twin")
    assert text.splitlines()[1:5] == [
        "NodeName=n1 Name=gpu Type=h100 File=/run/twin/dev/gpu0 Cores=0-7",
        "NodeName=n1 Name=gpu Type=h100 File=/run/twin/dev/gpu1 Cores=0-7",
        "NodeName=n1 Name=gpu Type=h100 File=/run/twin/dev/gpu2 Cores=8-15",
        "NodeName=n1 Name=gpu Type=h100 File=/run/twin/dev/gpu3 Cores=8-15",
    ]
    assert devices == ("dev/gpu0", "dev/gpu1", "dev/gpu2", "dev/gpu3")


def test_slices_of_a_gpu_keep_all_of_their_files() -> None:
    """Two slices have the GPU's file in common, which slurmctld refuses as File of both."""
    lines = "".join(f"Name=gpu MultipleFiles=/dev/nvidia0,/dev/caps/cap{n}\n" for n in (1, 2))
    text, devices = gres_conf(
        lines + "Name=shard Count=4\n", {"n1": {"Gres": "gpu:2,shard:4"}}, "/run/twin"
    )
    assert text.splitlines()[1:] == [
        "NodeName=n1 Name=gpu MultipleFiles=/run/twin/dev/nvidia0,/run/twin/dev/caps/cap1",
        "NodeName=n1 Name=gpu MultipleFiles=/run/twin/dev/nvidia0,/run/twin/dev/caps/cap2",
        "NodeName=n1 Name=shard Count=2 File=/run/twin/dev/caps/cap1",
        "NodeName=n1 Name=shard Count=2 File=/run/twin/dev/caps/cap2",
    ]
    assert devices == ("dev/nvidia0", "dev/caps/cap1", "dev/caps/cap2")


def test_shards_without_a_file_are_shared_over_the_gpus() -> None:
    text, _ = gres_conf(
        "Name=gpu File=/dev/nvidia[0-3]\nName=shard Count=10\n", {"n1": NODE}, "/run/twin"
    )
    assert [line.split(" ", 1)[1] for line in text.splitlines() if "shard" in line] == [
        "Name=shard Count=3 File=/run/twin/dev/nvidia0",
        "Name=shard Count=3 File=/run/twin/dev/nvidia1",
        "Name=shard Count=2 File=/run/twin/dev/nvidia2",
        "Name=shard Count=2 File=/run/twin/dev/nvidia3",
    ]


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["n1", "n2", "n3"], "n[1-3]"),
        (["n09", "n10", "n12"], "n[09-10,12]"),
        (["n9", "n10"], "n[9-10]"),
        (["head", "r1n4", "r2n4", "r1n5"], "head,r1n[4-5],r2n4"),
        ([], ""),
    ],
)
def test_names_are_folded_to_what_slurm_reads_as_the_same(names: list[str], folded: str) -> None:
    assert fold_names(names) == folded
    assert sorted(expand_names(folded)) == sorted(names)


def test_nodes_that_are_alike_share_their_lines() -> None:
    nodes = {f"g{n}": {"Gres": "gpu:h100:2"} for n in range(1, 401)} | {"a1": {"Gres": "gpu:2"}}
    text, devices = gres_conf(
        "NodeName=g[1-400],a1 Name=gpu File=/dev/nvidia[0-1]\n", nodes, "/run/twin"
    )
    assert text.splitlines()[1:] == [
        "NodeName=a1,g[1-400] Name=gpu File=/run/twin/dev/nvidia0,/run/twin/dev/nvidia1"
    ]
    assert len(devices) == 2
