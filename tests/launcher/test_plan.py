"""Options become a plan; plans are compared as whole values."""

from __future__ import annotations

import pytest

from podwright.errors import InvalidRequest
from podwright.launcher import Instance, Plan, make_plan, parse
from podwright.launcher.plan._wanted_partition import WantedPartition
from podwright.wire import AcquireRequest, PartitionSpec, SyncType

GUIDE = (
    "--vipu-partition=my_partition --vipu-server-host=vipu.my_domain --vipu-server-port=34521 "
    "--num-replicas=32 --num-instances=2 --num-ilds=2 python3 train.py"
)


def test_the_guides_example_becomes_the_guides_plan() -> None:
    """PopRun guide 2.8.3: 32 devices, 2 GCDs, 2 replicas, 2 ILDs; 16 replicas an instance."""
    assert make_plan(parse(GUIDE.split()), {}) == Plan(
        program=("python3", "train.py"),
        replicas=32,
        ipus_per_replica=1,
        instances=tuple(
            Instance(
                rank=i,
                host="localhost",
                local_index=i,
                replicas=16,
                environment=(
                    ("POPDIST_REPLICA_INDEX_OFFSET", str(16 * i)),
                    ("POPDIST_LOCAL_INSTANCE_INDEX", str(i)),
                    ("IPUOF_VIPU_API_GCD_ID", str(i)),
                    ("RANK", str(i)),
                    ("LOCAL_RANK", str(i)),
                ),
            )
            for i in range(2)
        ),
        wanted=WantedPartition(
            name="my_partition",
            devices=32,
            allocation="",
            instances=2,
            ilds=2,
            sync_type="DEFAULT",
            movable=False,
            parent="",
            create=True,
            update=False,
            keep=False,
            reset=None,
            ttl=300.0,
        ),
        environment=(
            ("POPDIST_NUM_TOTAL_REPLICAS", "32"),
            ("POPDIST_NUM_IPUS_PER_REPLICA", "1"),
            ("POPDIST_NUM_LOCAL_REPLICAS", "16"),
            ("POPDIST_UNIFORM_REPLICAS_PER_INSTANCE", "1"),
            ("IPUOF_LOG_LEVEL", "WARN"),
            ("WORLD_SIZE", "2"),
            ("LOCAL_WORLD_SIZE", "2"),
            ("IPUOF_VIPU_API_TIMEOUT", "120"),
        ),
        server_host="vipu.my_domain",
        server_port="34521",
        cache="temporary",
    )


def test_options_become_the_request_to_the_server() -> None:
    line = (
        "--num-replicas 4 --ipus-per-replica 4 --update-partition=yes --remove-partition=no "
        "--reset-partition=no --vipu-allocation=a1 --sync-type=ST_POD_NATIVE_DEFAULT t"
    )
    assert make_plan(parse(line.split()), {}).wanted.request() == AcquireRequest(
        spec=PartitionSpec(
            name="",
            size=16,
            allocation="a1",
            num_gcds=1,
            num_replicas=1,
            sync_type=SyncType.POD_NATIVE_DEFAULT,
        ),
        create=True,
        update=True,
        keep=True,
        reset=False,
        ttl=300.0,
    )


def test_the_environment_stands_in_for_options_and_options_win() -> None:
    environ = {
        "IPUOF_VIPU_API_HOST": "there",
        "IPUOF_VIPU_API_PORT": "1234",
        "IPUOF_VIPU_API_PARTITION_ID": "theirs",
        "IPUOF_LOG_LEVEL": "DEBUG",
    }
    plan = make_plan(parse(["--num-replicas=2", "t"]), environ)
    assert (plan.server_host, plan.server_port) == ("there", "1234")
    assert plan.wanted.request().spec.name == "theirs"
    assert ("IPUOF_LOG_LEVEL", "DEBUG") in plan.environment
    line = "--vipu-server-host=here --vipu-server-port=99 --vipu-partition=mine t"
    plan = make_plan(parse(line.split()), environ)
    assert (plan.server_host, plan.server_port) == ("here", "99")
    assert plan.wanted.request().spec.name == "mine"


def test_arguments_for_mpirun_add_up() -> None:
    plan = make_plan(
        parse(
            [
                *("--num-replicas=2", "--num-instances=2"),
                *("--mpi-global-args=--a b", "--mpi-global-args", "'c d'"),
                *("--mpi-local-args=-x A", "--mpi-local-args", "-x 'B=1 2'"),
                *("--instance-mpi-local-args=1:-x C=3", "t"),
            ]
        ),
        {},
    )
    assert plan.mpi_arguments == ("--a", "b", "c d")
    assert plan.instances[0].mpi_arguments == ("-x", "A", "-x", "B=1 2")
    assert plan.instances[1].mpi_arguments == ("-x", "A", "-x", "B=1 2", "-x", "C=3")


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("--num-replicas=4", "there is no program"),
        (
            "--num-replicas=12 --num-instances=8 t",
            "12 replicas do not divide evenly among 8 instances. "
            "Write --num-replicas 16 --num-instances 8, or --num-replicas 12 --num-instances N, "
            "where N is 1, 2, 3, 4, 6 or 12. For what torchrun starts with --nproc-per-node 8: "
            "--num-replicas 8 --num-instances 8.",
        ),
        ("--num-instances=2 t", "1 replicas do not divide evenly among 2 instances"),
        ("--num-replicas=2 --only-output-from-instance=1 t", "There are 0 to 0"),
        ("--num-replicas=2 --instance-mpi-local-args=5:x t", "there is no such instance"),
        ("--num-replicas=2 --sync-type=ST_NONE t", "there is no sync type 'NONE'. There are"),
        ("--num-replicas=2 --mpi-global-args=it's t", "no closing quotation"),
    ],
)
def test_launches_that_can_never_work_are_refused(line: str, wanted: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        make_plan(parse(line.split()), {})
    assert wanted in caught.value.message
    assert caught.value.exit_code == 2


def test_one_replica_in_one_instance_and_old_names_are_only_warned_of() -> None:
    plan = make_plan(parse(["--numa-aware=1", "--vipu-cluster=c1", "t"]), {})
    assert [note.split(":")[0] for note in plan.notes] == [
        "1 replica in 1 instance",
        "--numa-aware is deprecated; write --process-placement spreadnuma",
        "--vipu-cluster is deprecated; write --vipu-allocation",
    ]
    assert plan.wanted.request().spec.allocation == "c1"


def test_a_plan_prints_itself_and_names_what_only_the_server_knows() -> None:
    text = str(make_plan(parse(["--num-replicas=4", "--num-instances=2", "a b", "c"]), {}))
    assert "program:         'a b' c\n" in text
    assert "devices:       4\n" in text
    assert "partition:       decided by the server\n" in text
    assert "ILDs:          decided by the server\n" in text
    assert "instance 1 on localhost: POPDIST_REPLICA_INDEX_OFFSET=2 " in text
    assert "| decided by the server |" in text


@pytest.mark.parametrize(
    ("environ", "options", "parent", "creates"),
    [
        ({"PODWRIGHT_LEASE": "L1"}, (), "L1", False),
        ({"SLURM_JOB_ID": "7", "IPUOF_VIPU_API_PARTITION_ID": "j7"}, (), "", False),
        ({"SLURM_JOB_ID": "7"}, (), "", True),
        ({"IPUOF_VIPU_API_PARTITION_ID": "mine"}, (), "", True),
        (
            {"SLURM_JOB_ID": "7", "IPUOF_VIPU_API_PARTITION_ID": "j7"},
            ("--vipu-partition=mine",),
            "",
            True,
        ),
    ],
)
def test_a_job_gets_no_more_than_it_was_granted(
    environ: dict[str, str], options: tuple[str, ...], parent: str, creates: bool
) -> None:
    line = ["--update-partition=yes", *options, "t"]
    request = make_plan(parse(line), environ).wanted.request()
    assert (request.parent, request.create, request.update) == (parent, creates, creates)


def test_an_option_says_when_devices_are_fenced() -> None:
    assert make_plan(parse(["t"]), {"PODWRIGHT_FENCE_AFTER": "30"}).wanted.request().ttl == 30
    for wrong in ("soon", "1", "3601", "nan", "inf", "-30"):
        with pytest.raises(InvalidRequest, match="Use seconds from 15 to 3600"):
            make_plan(parse(["t"]), {"PODWRIGHT_FENCE_AFTER": wrong})
        with pytest.raises(InvalidRequest, match="from 15 to 3600"):
            parse([f"--fence-after={wrong}", "t"])
    typed = parse(["--fence-after=60", "t"])
    assert make_plan(typed, {"PODWRIGHT_FENCE_AFTER": "30"}).wanted.request().ttl == 60


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--num-replicas=3 --num-instances=1", "the nearest sizes are 2 or 4"),
        ("--num-replicas=12 --num-instances=1", "the nearest sizes are 8 or 16"),
        ("--num-replicas=12 --num-instances=12", "no partition of 12 in 12 GCDs"),
        ("--num-replicas=8 --num-instances=1 --ipus-per-replica=8", ""),
    ],
)
def test_a_dry_run_says_what_a_pod_of_ipus_would_refuse(line: str, words: str) -> None:
    notes = make_plan(parse(f"--dry-run {line} t".split()), {}).notes
    assert [note for note in notes if "pod of IPUs" in note] == [
        note for note in notes if words and words in note
    ]
    assert bool(words) == any("--dry-run=server asks yours" in note for note in notes)
    assert make_plan(parse(f"{line} t".split()), {}).notes == ()


def test_an_option_inside_a_value_is_no_host() -> None:
    line = "--num-replicas=2 --vipu-server-host=h1--host=h1,h2 t"
    with pytest.raises(InvalidRequest, match="'h1--host=h1' is not the address of a server"):
        make_plan(parse(line.split()), {})
