"""A partition from Python: created, held, and removed, however the program ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

import podwright
from podwright.api._listing import html_card
from podwright.errors import (
    AlreadyExists,
    Fenced,
    Held,
    InvalidRequest,
    NoCapacity,
    NotFound,
    PodwrightError,
)
from tests.whole.conftest import Pod as Server

#: A program that holds a partition and says so, then does what it was told.
HOLDS = """
import podwright, sys, time
pod = podwright.connect()
partition = pod.partition(size=4, gcds=2)
print(partition.name, partition._keeper.pid, flush=True)
{then}
"""


def _until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_partition_is_created_held_and_removed(server: Server) -> None:
    with podwright.connect() as pod:
        assert pod.simulated
        with pod.partition(size=4, gcds=2) as partition:
            assert (partition.size, partition.info.num_gcds, partition.held) == (4, 2, True)
            (lease,) = pod.leases()
            assert (lease.partition, str(os.getpid()) in lease.holder) == (partition.name, True)
            assert [p.name for p in pod.partitions()] == [partition.name]
            assert partition.refresh().leases == [lease] or partition.info.leases
            with pytest.raises(Held):
                pod.remove(partition.name)
        assert (pod.partitions(), pod.leases(), partition.held) == ([], [], False)
        partition.close()  # again is not an error


def test_a_partition_that_was_there_is_held_and_stays(server: Server) -> None:
    server.good("vipu", "create", "partition", "mine", "--size", "2")
    with podwright.connect() as pod:
        with pod.partition(size=2, name="mine") as partition:
            assert (partition.created, partition.name) == (False, "mine")
        assert pod.get("mine").leases == []
        pod.remove("mine")


def test_a_refused_request_says_what_would_work(server: Server) -> None:
    with podwright.connect() as pod:
        with pytest.raises(InvalidRequest) as refused:
            pod.partition(size=3)
        assert refused.value.would_work
        with pod.partition(size=16):
            with pytest.raises(NoCapacity):
                pod.partition(size=2)
            assert not pod.explain(2).starts_now
        with pytest.raises(NotFound):
            pod.get("nobody")


def test_a_wait_in_the_queue_reports_its_progress(server: Server) -> None:
    heard: list[str] = []
    with podwright.connect() as pod:
        first = pod.partition(size=16)
        room = threading.Thread(target=first.close)

        def hear(line: str) -> None:
            if not heard:
                room.start()
            heard.append(line)

        with pod.partition(size=2, wait=True, progress=hear) as partition:
            assert partition.held
        room.join()
    assert heard[0].startswith("place 1 in the queue")


def test_a_killed_program_leaves_no_partition(server: Server) -> None:
    program = HOLDS.format(then="time.sleep(1000)")
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    name = process.stdout.readline().split()[0]
    assert name in server.partitions()
    process.kill()
    process.wait()
    process.stdout.close()
    _until(lambda: server.partitions() == {})


def test_a_program_that_forgets_to_close_leaves_no_partition(server: Server) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HOLDS.format(then="")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    _until(lambda: server.partitions() == {})


def test_a_partition_outlives_no_program_by_its_forks(server: Server) -> None:
    """Processes that multiprocessing forks have copies of all open files."""
    then = (
        "import multiprocessing\n"
        "child = multiprocessing.get_context('fork').Process(target=time.sleep, args=(1000,))\n"
        "child.start(); print(child.pid, flush=True); time.sleep(1000)"
    )
    program = [sys.executable, "-W", "ignore", "-c", HOLDS.format(then=then)]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    process.stdout.readline()
    fork = int(process.stdout.readline())
    try:
        process.kill()
        process.wait()
        _until(lambda: server.partitions() == {})
    finally:
        os.kill(fork, signal.SIGKILL)
        process.stdout.close()


def test_a_partition_is_given_back_although_its_keeper_was_ended(server: Server) -> None:
    with podwright.connect() as pod:
        partition = pod.partition(size=4)
        partition._keeper.kill()
        partition._keeper.wait()
        assert not partition.held
        partition.close()
        assert pod.partitions() == []


def test_a_lease_that_an_administrator_ended_is_told(server: Server) -> None:
    with podwright.connect() as pod:
        partition = pod.partition(size=4)
        (lease,) = pod.leases()
        server.good("vipu", "remove", "lease", lease.id, "--force")
        with pytest.raises((NotFound, podwright.errors.Fenced)):
            partition.close()


def test_a_stopped_program_keeps_its_partition(server: Server) -> None:
    program = HOLDS.format(then="sys.stdin.readline(); partition.close(); print('over')")
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    name, keeper = process.stdout.readline().split()
    process.send_signal(signal.SIGSTOP)
    before = server.json("vipu", "list", "leases")
    assert os.path.exists(f"/proc/{keeper}")
    process.send_signal(signal.SIGCONT)
    out, _ = process.communicate("go\n", timeout=120)
    assert (out, process.returncode) == ("over\n", 0)
    assert name in str(before)


def test_multiprocessing_works_while_a_partition_is_held(server: Server) -> None:
    with podwright.partition(2) as partition:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.map(abs, [-1]) == [1]
        assert partition.held


def test_a_partition_that_nobody_holds_stays(server: Server) -> None:
    """As `vipu create`; and what `vipu` shows of it, each in words of its own."""
    with podwright.connect() as pod:
        since = max((event.number for event in pod.events()), default=0)
        made = pod.create(podwright.PartitionSpec(name="stays", size=16), duration=600.0)
        assert (made.ready_state.value, made.leases) == ("ACTIVE", [])
        with pytest.raises(AlreadyExists):
            pod.create(podwright.PartitionSpec(name="stays", size=2))
        (told,) = [event for event in pod.events(since=since) if event.outcome == "OK"]
        assert (told.what, told.about) == ("CreatePartition", "stays")
        assert "stays" in pod.explain("stays").asked
        assert not pod.explain(podwright.PartitionSpec(name="", size=4)).starts_now
        assert pod.quotas() == []
        with pytest.raises(NotFound, match="there is no lease 'l9'"):
            pod.end_lease("l9")
        pod.remove("stays")
        with pod.partition(4) as held:
            (lease,) = pod.leases()
            assert pod.end_lease(lease.id, force=True).partition == held.name
            assert pod.leases() == []
            with pytest.raises((NotFound, Fenced)):
                held.close()


def test_a_waiting_thread_is_told_its_state_and_holds_up_no_other(server: Server) -> None:
    """The reports come over a connection of their own, and this connection removes what is in the
    way.
    """
    heard: list[str] = []
    made: list[object] = []
    with podwright.connect() as pod:
        first = pod.create(podwright.PartitionSpec(name="first", size=16))
        wanted = podwright.PartitionSpec(name="second", size=2)

        def wait() -> None:
            try:
                made.append(pod.create(wanted, wait=True, progress=heard.append))
            except PodwrightError as error:
                made.append(error)

        since = max(event.number for event in pod.events())
        events = pod.events(since=since, follow=True)
        for ended in (False, True):
            thread = threading.Thread(target=wait)
            thread.start()
            _until(lambda: len(pod.waiters()) == 1)
            (waiter,) = pod.waiters()
            if ended:
                pod.remove(first.name)
                assert next(e for e in events if e.what == "RemovePartition").about == "first"
            else:
                pod.leave(waiter.id)
            thread.join(120)
            assert heard[-1].startswith(("place 1 in the queue", "it is our turn"))
        events.close()
        gone, second = made
        assert isinstance(gone, NotFound)
        assert getattr(second, "name", gone) == "second"
        pod.remove("second")


def test_a_pod_does_with_partitions_what_vipu_does(server: Server) -> None:
    """By name, of a cluster or an allocation; what somebody holds is neither reset nor removed."""
    with podwright.connect() as pod, pod.partition(4) as held:
        assert [one.name for one in pod.partitions(cluster="pod16")] == [held.name]
        with pytest.raises(NotFound, match="of-nobody"):
            pod.partitions(allocation="of-nobody")
        assert len(pod.devices(cluster="pod16")) == 16
        assert [one.name for one in pod.allocations(cluster="pod16")] == ["pod16"]
        assert pod.waiters() == []
        with pytest.raises(Held):
            pod.reset(held.name)
        with pytest.raises(Held):
            pod.remove(held.name)
        pod.remove(held.name, force=True)
        assert pod.partitions() == []
        with pytest.raises(Fenced):
            held.close()


def test_a_partition_of_another_size_is_refused_or_with_update_made_anew(server: Server) -> None:
    with podwright.connect() as pod:
        pod.create(podwright.PartitionSpec(name="p1", size=8))
        with pytest.raises(PodwrightError, match="size 8 instead of 4"):
            pod.partition(4, name="p1")
        with pod.partition(4, name="p1", update=True) as held:
            assert (held.name, held.size) == ("p1", 4)
    server.clear()


def test_a_notebook_shows_a_pod_its_lists_and_a_partition_as_tables(server: Server) -> None:
    with podwright.connect() as pod, pod.partition(4, name="p1") as held:
        assert "<caption>partition p1</caption>" in held._repr_html_()
        clusters = pod.clusters()
        assert clusters[0].name == "pod16"
        assert len(repr(clusters).splitlines()) == 3, "a line for the cluster, and no wall"
        for listing in (clusters, pod.partitions(), pod.devices(), pod.allocations(), pod.leases()):
            assert listing._repr_html_().count("<tr>") == len(listing) + 1
        assert "<td>p1</td>" in pod.partitions()._repr_html_()
        assert pod.address in pod._repr_html_()


def test_what_others_named_is_text_in_a_notebook() -> None:
    shown = html_card("<b>", [("a&b", 1)])
    assert "<caption>&lt;b&gt;</caption>" in shown
    assert "<td>a&amp;b</td><td>1</td>" in shown
