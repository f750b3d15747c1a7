"""Command lines as people write them: complete, with their quirks, and with mistakes.

The lines are ours. Their options, quoting and mistakes are those of lines in public repositories.
"""

from __future__ import annotations

import shlex

import pytest

from podwright.errors import InvalidRequest
from podwright.launcher import make_plan, parse

SUBNET = "--mca oob_tcp_if_include 10.5.0.0/16 --mca btl_tcp_if_include 10.5.0.0/16"
LISTS = (
    " -x OPAL_PREFIX -x LD_LIBRARY_PATH -x PATH -x PYTHONPATH -x CPATH"
    " -x IPUOF_VIPU_API_TIMEOUT=600 -x POPLAR_LOG_LEVEL=WARN -x POPLAR_ENGINE_OPTIONS"
)

#: Options, instances, replicas, devices of a replica, executable cache.
WHOLE = [
    (
        "-vv --num-instances=4 --num-replicas=4 --executable-cache-path=/scratch/exe "
        "python3 train.py mode=train run.id=${name}",
        (4, 4, 1, "/scratch/exe"),
    ),
    (
        f"-vv --mpi-global-args='--tag-output --allow-run-as-root ' --mpi-local-args='{LISTS}' "
        "--ipus-per-replica 1 --numa-aware 1 --num-instances 8 --num-replicas 8 ./replica.py "
        '--out /data/"u"/r"8"',
        (8, 8, 1, "temporary"),
    ),
    (
        "--num-replicas 2 --num-instances 2 --ipus-per-replica 1 python t.py conf.yaml",
        (2, 2, 1, "temporary"),
    ),
    (
        "--offline-mode=yes --numa-aware=yes --num-instances 8 --num-replicas 8 python b.py",
        (8, 8, 1, "temporary"),
    ),
    ("--offline-mode=on --num-instances 2 --num-replicas 16 --ipus-per-replica 8 python b.py",
     (2, 16, 8, "temporary")),
    (
        "-vv --num-instances=16 --num-replicas=64 --vipu-server-host=ctl --host=n1,n2 "
        "--vipu-server-port 8090 --num-ilds=1 --vipu-partition=pt --numa-aware=yes "
        "--update-partition=no --remove-partition=no --reset-partition=no --print-topology=yes "
        f'--executable-cache-path /exe --mpi-global-args="--tag-output {SUBNET}" '
        f'--mpi-local-args="{LISTS}" python3 train.py --config big',
        (16, 64, 1, "/exe"),
    ),
    (
        f'--vv --num-instances 1 --num-replicas 16 --update-partition=yes --remove-partition=yes '
        "--reset-partition=no --sync-type=ST_POD_NATIVE_DEFAULT --vipu-server-timeout 300 "
        "--vipu-server-host ctl --vipu-partition=pt --vipu-cluster=cl --ipus-per-replica 4 "
        f'--mpi-global-args=" {SUBNET}" --mpi-local-args="{LISTS}" python3 bert.py --input=*.x',
        (1, 16, 4, ""),
    ),
    (
        '-v --numa-aware 1 --num-instances 8 --num-replicas 16 --mpi-local-args="--tag-output" '
        "python3 validate.py",
        (8, 16, 1, "temporary"),
    ),
    (
        "--num-instance=2 --num-replicas=4 --remove-partition=0 --reset-partition=false echo "
        '"Hello World"',
        (2, 4, 1, "temporary"),
    ),
    (
        '--vipu-partition=pt --mpi-global-args="--tag-output" --num-replicas=4 --num-instances=1 '
        '--executable-cache-path="" python3 train.py',
        (1, 4, 1, ""),
    ),
    (
        "--num-replicas=4 --num-instances=4 --mpi-global-args=--tag-output "
        "--mpi-global-args='--output-filename logs' --only-output-from-instance 0 python3 t.py",
        (4, 4, 1, "temporary"),
    ),
    ("--vipu-server-host a --vipu-server-host=b --num-replicas=2 python3 t.py", (1, 2, 1, "")),
    (
        "--num-replicas=4 --num-instances=4 --autoreport-dir /tmp/prof --mpi-local-args "
        """'-x POPLAR_ENGINE_OPTIONS='{"allowOutOfMemory":"true"}'' python3 t.py""",
        (4, 4, 1, "temporary"),
    ),
    ("--host 10.1.2.[3-4],10.1.3.[3-4] --num-instances=4 --num-replicas=4 t",
     (4, 4, 1, "temporary")),
    ("--num-replicas=1 --num-instances=1 python3 t.py", (1, 1, 1, "")),
]  # fmt: skip


@pytest.mark.parametrize(("line", "shape"), WHOLE)
def test_whole_command_lines_become_their_plans(
    line: str, shape: tuple[int, int, int, str]
) -> None:
    plan = make_plan(parse(shlex.split(line)), {})
    assert (len(plan.instances), plan.replicas, plan.ipus_per_replica, plan.cache) == shape
    assert "-x" not in plan.program
    assert str(plan)


def test_repeated_options_replace_or_add() -> None:
    line = "--vipu-server-host a --vipu-server-host=b --vv --num-replicas=2 --num-replicas=4 t"
    plan = make_plan(parse(shlex.split(line)), {})
    assert (plan.server_host, plan.verbosity, plan.replicas) == ("b", 2, 4)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("--num-replicas=4 --num=ilds 4 t", "--num is ambiguous. It could be"),
        ("--num-replicas=4 ' --num-instances=2' t", "backslash and no blank after it"),
        ("--num-instances= --num-replicas= t", "--num-instances takes a whole number above 0"),
        ("--num-instances 4 --num-replicas 6 t", "where N is 1, 2, 3 or 6"),
        ("--vipu-server-host --vipu-partition=p t", "--vipu-server-host needs a value"),
        ("--num-replicas=4 --num-instances=2", "there is no program to run"),
        ("--mpi-local-args='-x A=\"1' t", "no closing quotation"),
        ("--num-instances=4 --num-replicas=4 --only-output-from-instance 4 t", "0 to 3"),
        (
            "--autoreport-dir /p --num-replicas 4 --num-instances 4 --instance-mpi-local-args "
            """'0:-x POPLAR_ENGINE_OPTIONS='{"autoReport.directory":"/p/0"}'' t""",
            "autoreport-dir command line argument cannot be specified when",
        ),
    ],
)
def test_broken_command_lines_are_refused_with_the_reason(line: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why) as caught:
        make_plan(parse(shlex.split(line)), {})
    assert "\n" not in caught.value.message
