"""A program that computes on this machine's own GPU is seen, waited for, and shut out.

All tests need an NVIDIA GPU, and are skipped without one. Nothing here resets a GPU or changes one
of its settings.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from podwright.agents.gpu import Cgroups, open_machine
from podwright.errors import Internal, InvalidRequest
from podwright.fabric import Machine
from podwright.hosts import DeviceCgroups, find_device_cgroups
from podwright.hosts.gpus import take_gpus

pytestmark = pytest.mark.skipif(
    not os.path.exists("/dev/nvidiactl"), reason="this machine has no NVIDIA GPU"
)
_PROGRAM = Path(__file__).with_name("cuda_program.py")


class CudaProgram:
    """The program, before it opens the GPU and until it is closed."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def compute(self) -> dict[str, object]:
        """Let it compute. It keeps its memory of the GPU until it is closed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        outcome: dict[str, object] = json.loads(self._process.stdout.readline())
        return outcome

    def close(self) -> None:
        """It ends, and gives its memory back."""
        self._process.communicate()


@pytest.fixture
def start() -> Iterator[Callable[[], CudaProgram]]:
    """Starts programs, and ends them after the test."""
    with ExitStack() as stack:

        def start_program() -> CudaProgram:
            program = CudaProgram()
            stack.callback(program.close)
            return program

        yield start_program


@pytest.fixture
def groups() -> Iterator[DeviceCgroups]:
    """The kernel's device cgroups, in a folder of the test's own."""
    device_groups = find_device_cgroups(f"podwright-test-{os.getpid()}")
    if os.geteuid() != 0 or device_groups is None:
        pytest.skip("device cgroups need root, and a hierarchy that is mounted")
    yield device_groups
    for name in device_groups.names():
        device_groups.remove(name)


def test_nvml_and_cuda_name_the_same_gpu(start: Callable[[], CudaProgram]) -> None:
    outcome = start().compute()
    inventory = take_gpus(os.environ)
    for library in inventory.libraries:
        library.close()
    assert outcome["right"] is True, outcome
    assert outcome["uuid"] in [gpu.uuid for gpu in inventory.gpus]


async def test_a_gpu_in_use_is_given_to_nobody(start: Callable[[], CudaProgram]) -> None:
    program = start()
    outcome = program.compute()
    machine = open_machine(Machine("own"), os.environ, release_patience=0.0)
    assert machine is not None
    try:
        index = [gpu.uuid for gpu in machine.gpus].index(str(outcome["uuid"]))
        with pytest.raises(Internal, match=rf"is held by .*\b{program.pid}\b"):
            await machine.configure("p1", 5, [index])
        report = (await machine.describe()).devices[index]
        assert str(program.pid) in report.attributes["processes"]
    finally:
        machine.close()
    program.close()
    # NVML lists a process for a moment after it has ended, so this machine has patience.
    machine = open_machine(Machine("own"), os.environ)
    assert machine is not None
    try:
        await machine.configure("p1", 6, [index])
        assert (await machine.describe()).configured == {index: ("p1", 6)}
        await machine.release(7, [index])
    finally:
        machine.close()


def test_a_device_cgroup_shuts_a_program_out(
    start: Callable[[], CudaProgram], groups: DeviceCgroups
) -> None:
    inventory = take_gpus(os.environ)
    for library in inventory.libraries:
        library.close()
    guard = Cgroups(groups, inventory.gpus)
    try:
        guard.check_supported()
    except InvalidRequest as error:
        pytest.skip(error.message)
    guard.join("inside", "", inventory.gpus)
    guard.join("outside", "", ())
    inside, outside = start(), start()
    guard.enter("inside", inside.pid)
    guard.enter("outside", outside.pid)
    assert guard.members("outside") == [outside.pid]
    assert inside.compute()["right"] is True
    refusal = outside.compute()
    assert refusal.get("error"), refusal
    for program in (inside, outside):
        program.close()
    guard.leave(inventory.gpus)
    assert "inside" not in groups.names()
