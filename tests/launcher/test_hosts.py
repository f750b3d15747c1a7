"""Several hosts on one machine: a stand-in for ssh runs a host's commands here."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwright.errors import InvalidRequest
from podwright.hosts import (
    Subnet,
    address_in,
    common_subnet,
    explain,
    srun_command,
    ssh_command,
    subnets,
)
from podwright.launcher import make_plan, parse
from podwright.launcher.hosts._relay_protocol import OUTPUT, RelayConnection
from tests.launcher.conftest import Launcher, wait_until

TWO = ("--host=far[1-2]", "--num-replicas=2", "--num-instances=2", "--launcher=local")
_SSH = """\
#!/bin/sh
echo "$@" >>"$SSH_CALLS"
while [ "$1" != -- ]; do shift; done
case "$2" in
mute) exec sleep 60 ;;
noisy) echo "Welcome!" ;;
old) exec echo "
podwright-relay 0.0.1" ;;
esac
shift 2
exec /bin/sh -c "$*"
"""


@pytest.fixture
def far(launcher: Launcher) -> Launcher:
    """poprun with the stand-in as its ssh."""
    folder = launcher.folder / "bin"
    folder.mkdir()
    (folder / "ssh").write_text(_SSH)
    (folder / "ssh").chmod(0o755)
    launcher.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    launcher.environ["SSH_CALLS"] = str(launcher.folder / "ssh-calls")
    return launcher


def test_instances_run_through_relays(far: Launcher) -> None:
    odd = "a 'b' \"c\" $d \\ `e`\nf;|&"
    far.environ |= {"ODD": odd, "with.dot": "1"}
    show = "import os, sys; print(ascii([sys.argv[1], os.environ['ODD'], os.environ['with.dot']]))"
    ran = far.run(*TWO, sys.executable, "-c", show, odd)
    assert ran.code == 0, ran
    wanted = ascii([odd, odd, "1"])
    assert sorted(ran.out.splitlines()) == [f"[1,{i}]<stdout>: {wanted}" for i in range(2)]
    calls = (far.folder / "ssh-calls").read_text()
    assert "-oBatchMode=yes" in calls
    assert "ODD" not in calls  # no variable is shown in a list of arguments
    far.leaves_nothing()


@pytest.mark.parametrize("by", ["local", "mpirun"])
def test_instance_0_reads_its_input_on_another_host(far: Launcher, by: str) -> None:
    """More than is on its way at a time, and the end."""
    given = far.folder / "given"
    given.write_bytes(os.urandom(1 << 20))
    with given.open("rb") as far.stdin:
        words = [*TWO[:-1], f"--launcher={by}", "sh", "-c", "cat >got.$RANK; echo end"]
        ran = far.run(*words)
    assert ran.code == 0, ran
    assert ran.out.count("<stdout>: end\n") == 2
    assert (far.cwd / "got.0").read_bytes() == given.read_bytes()
    assert (far.cwd / "got.1").read_bytes() == b""
    far.leaves_nothing()


def test_an_instance_on_another_host_that_reads_nothing_holds_nothing_up(far: Launcher) -> None:
    """poprun keeps no more than a little of what nobody reads."""
    with Path("/dev/zero").open("rb") as far.stdin:
        ran = far.run(*TWO, "sh", "-c", "head -c 5 | wc -c")
    assert ran.code == 0, ran
    assert sorted(ran.out.splitlines()) == ["[1,0]<stdout>: 5", "[1,1]<stdout>: 0"]
    far.leaves_nothing()


def test_lines_stay_whole_through_relays(far: Launcher) -> None:
    program = "import os\nfor i in range(20000): print(os.environ['RANK'], i, 'x' * (i % 99))"
    ran = far.run(*TWO, sys.executable, "-c", program)
    for me in range(2):
        tag = f"[1,{me}]<stdout>: "
        got = [line[len(tag) :] for line in ran.out.splitlines() if line.startswith(tag)]
        assert got == [f"{me} {i} {'x' * (i % 99)}" for i in range(20000)]


def test_the_first_failure_is_named_with_its_host(far: Launcher) -> None:
    ran = far.run(*TWO, "sh", "-c", 'test $RANK = 0 && exec sleep 60; echo "so sorry"; kill -9 $$')
    assert ran.code == 137
    assert "instance 1 on far2 was ended by signal 9 (SIGKILL). Its last lines:" in ran.err
    assert "so sorry" in ran.err
    far.leaves_nothing()


def test_kill_9_of_poprun_ends_what_relays_started(far: Launcher) -> None:
    process = far.start(*TWO, "sh", "-c", "echo up; sleep 60 & sleep 61")
    assert process.stdout
    for _ in range(2):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    far.leaves_nothing()


def test_what_login_scripts_print_is_passed_over(far: Launcher) -> None:
    ran = far.run("--host=noisy,far1", *TWO[1:], "sh", "-c", "echo $RANK")
    assert sorted(ran.out.splitlines()) == ["[1,0]<stdout>: 0", "[1,1]<stdout>: 1"], ran


@pytest.mark.parametrize(
    ("host", "program", "code", "wanted"),
    [
        ("old", "true", 69, "host old: it has Podwright 0.0.1, this host has"),
        ("far1", "/nowhere/t", 127, "there is no program '/nowhere/t'"),
    ],
)
def test_a_host_that_refuses_the_login_is_named(
    far: Launcher, host: str, program: str, code: int, wanted: str
) -> None:
    ran = far.run(f"--host={host},far2", *TWO[1:], program)
    assert (ran.code, ran.out) == (code, "")
    assert wanted in ran.err
    assert far.calls() == []
    far.leaves_nothing()


def test_ctrl_c_ends_the_wait_for_a_host_that_does_not_answer(far: Launcher) -> None:
    process = far.start("--host=mute,far2", *TWO[1:], "true")
    calls = far.folder / "ssh-calls"
    wait_until(lambda: calls.exists() and calls.read_text().count("\n") == 2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)
    assert process.returncode == 130
    far.leaves_nothing()


@pytest.mark.parametrize(
    ("line", "environ", "hosts", "by_slurm"),
    [
        ("--num-instances=4 t", {}, ["localhost"] * 4, False),
        ("--num-instances=4 -H n[1-2] t", {}, ["n1", "n1", "n2", "n2"], False),
        ("--num-instances=2 --host b,a t", {}, ["b", "a"], False),
        ("--num-instances=4 t", {"SLURM_JOB_NODELIST": "n[3-4]"}, ["n3", "n3", "n4", "n4"], True),
        ("--num-instances=1 t", {"SLURM_JOB_NODELIST": "n[3-4]"}, ["n3"], True),
        ("--num-instances=1 -H n4 t", {"SLURM_JOB_NODELIST": "n[3-4]"}, ["n4"], True),
        ("--num-instances=2 -H n[1-4] t", {}, ["n1", "n2"], False),
        ("--num-instances=1 -H m4 t", {"SLURM_JOB_NODELIST": "n[3-4]"}, ["m4"], False),
    ],
)
def test_instances_are_divided_evenly_among_hosts(
    line: str, environ: dict[str, str], hosts: list[str], by_slurm: bool
) -> None:
    if environ:
        environ = {**environ, "SLURM_JOB_ID": "7"}
    plan = make_plan(parse(["--num-replicas=4", *line.split()]), environ)
    assert [instance.host for instance in plan.instances] == hosts
    assert plan.by_slurm == by_slurm
    share = len(hosts) // len(set(hosts))
    assert [i.local_index for i in plan.instances] == [n % share for n in range(len(hosts))]
    assert dict(plan.environment)["LOCAL_WORLD_SIZE"] == str(share)


def test_hosts_that_are_left_share_the_instances() -> None:
    plan = make_plan(parse(["--num-replicas=4", "--num-instances=4", "-H", "n[1-6]", "t"]), {})
    assert (plan.hosts, plan.spares) == (("n1", "n2", "n3", "n4"), ("n5", "n6"))
    assert "4 instances run on n[1-4]; n5, n6: spare" in plan.notes
    moved = plan.over(["n1", "n3", "n5"])  # three do not divide four
    assert [i.host for i in moved.instances] == ["n1", "n1", "n3", "n3"]
    assert [dict(i.environment)["LOCAL_RANK"] for i in moved.instances] == list("0101")
    assert [dict(i.environment)["RANK"] for i in moved.instances] == list("0123")
    assert dict(moved.environment)["LOCAL_WORLD_SIZE"] == "2"
    assert plan.over(["n1", "n3", "n4", "n5", "n6"]).hosts == ("n1", "n3", "n4", "n5")


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("-H n[1-3] --num-instances=4", "On 3 hosts there can be 6 instances; 4 instances can run"),
        ("-H n1 --hostfile f --num-instances=4", "--host and --hostfile cannot be used"),
        ("--host-file /nowhere/f --num-instances=4", "/nowhere/f cannot be read"),
        ("--launcher=srun --num-instances=4", "--launcher=srun works only on nodes of a Slurm"),
        ("--host-subnet=10.1 --num-instances=4", "a network such as 10.1.0.0/16"),
    ],
)
def test_impossible_lists_of_hosts_are_refused(line: str, wanted: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        make_plan(parse(["--num-replicas=4", *line.split(), "t"]), {})
    assert wanted in caught.value.message


def test_hosts_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("n1\nn[7-8] # more\n")
    plan = make_plan(
        parse(["--num-replicas=3", "--num-instances=3", f"--hostfile={path}", "t"]), {}
    )
    assert plan.hosts == ("n1", "n7", "n8")
    assert "3, by ssh: n[1,7-8]" in str(plan)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1), st.binary(max_size=300))))
def test_a_connection_carries_every_message_in_order(pieces: list[tuple[int, int, bytes]]) -> None:
    reading, writing = os.pipe()
    other, unused = os.pipe()
    near, far = RelayConnection(other, writing, greets="1.2"), RelayConnection(reading, unused)
    try:
        os.write(writing, b"")
        got = []
        for index, stream, data in pieces:
            near.send_output(index, stream, data)
            near.send("said", [index, data.hex()])
            got += far.receive()
        got += far.receive()
        wanted: list[tuple[object, ...]] = []
        for index, stream, data in pieces:
            wanted += [(OUTPUT, index, stream, data), ("said", [index, data.hex()])]
        assert got == wanted
        assert far.version == "1.2"
    finally:
        near.close()
        far.close()


def test_a_connection_ends_at_bytes_that_are_no_message() -> None:
    reading, writing = os.pipe()
    far = RelayConnection(reading, writing)
    os.write(writing, b"hello\npodwright-relay 1\n" + b"\xff" * 64)
    assert far.receive() == []
    assert far.closed
    far.close()


def test_the_subnets_of_a_host_are_read(tmp_path: Path) -> None:
    """The kernel's tables of a host with one card and both kinds of addresses."""
    net = tmp_path / "proc" / "net"
    net.mkdir(parents=True)
    head = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
    mine, mask = ("0A010000", "FFFF0000")
    if sys.byteorder == "little":
        mine, mask = "0000010A", "0000FFFF"
    (net / "route").write_text(f"{head}eth0 {mine} 00000000 0001 0 0 0 {mask} 0 0 0\n")
    (net / "fib_trie").write_text("Local:\n |-- 10.1.0.7\n  /32 host LOCAL\n")
    (net / "if_inet6").write_text(
        "fd000001000000000000000000000007 04 40 00 82     eth0\n"
        "fd000001000000000000000000000009 04 80 00 82     eth0\n"
        "00000000000000000000000000000001 01 80 10 80       lo\n"
        "fe8000000000000000fc00fffe000001 04 40 20 80     eth0\n"
    )
    found = subnets(f"{tmp_path}/")
    assert [(s.cidr, s.address) for s in found] == [
        ("10.1.0.0/16", "10.1.0.7"),
        ("fd00:1::/64", "fd00:1::7"),
    ]
    (net / "if_inet6").unlink()
    assert len(subnets(f"{tmp_path}/")) == 1


def test_the_subnet_that_all_hosts_share_is_found() -> None:
    outside = Subnet("10.1.0.0/16", "eth0", "10.1.0.1", True)
    fast = Subnet("10.2.0.0/16", "ib0", "10.2.0.1")
    assert common_subnet([[outside, fast], [fast, outside]]) == "10.1.0.0/16"
    assert common_subnet([[outside, fast], [fast]]) == "10.2.0.0/16"
    assert common_subnet([[outside], [fast]]) == ""
    six = Subnet("fd00:1::/64", "eth0", "fd00:1::7")
    assert common_subnet([[outside, six], [fast, six]]) == "fd00:1::/64"
    assert address_in("fd00:1::/64", [outside, six]) == "fd00:1::7"
    assert address_in("10.1.0.0/16", [six, outside]) == "10.1.0.1"
    assert address_in("10.2.0.0/16", [outside, fast]) == "10.2.0.1"


def test_every_word_reaches_a_remote_command_unchanged(tmp_path: Path) -> None:
    for name in ("ssh", "srun"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    environ = {"PATH": str(tmp_path)}
    words = ssh_command("n1", ["python", "a b", "$(x)"], environ)
    assert words is not None
    assert words[-3:] == ["--", "n1", "exec python 'a b' '$(x)'"]
    words = srun_command("n1", ["python", "a b"], environ)
    assert words is not None
    assert words[-3:] == ["--", "python", "a b"]
    assert ssh_command("n1", [], {"PATH": "/nowhere"}) is None


def test_a_failure_of_ssh_becomes_advice() -> None:
    assert explain("n1", "Host key verification failed.\n", 255)[1] == "Confirm it once: ssh n1"
    assert explain("n1", "motd\nodd words\n", 255) == ("odd words", "See: ssh n1 true")
    assert explain("n1", "", None)[0] == "it does not answer in time"
    assert "exit code 3" in explain("n1", "", 3)[0]
    # A virtual environment is links: without the Python behind them a copy of it does not run.
    problem, hint = explain("n1", "sh: 1: /opt/v/bin/python: not found\n", 127)
    assert problem == "this host's Python is not there"
    assert sys.prefix != sys.base_prefix
    base = os.path.realpath(sys.executable)
    assert hint.startswith(f"Install the Python of this environment there, as {base}. Then copy ")
