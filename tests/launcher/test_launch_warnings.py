"""What a user is warned about while a launch goes on. No process, no clock."""

from __future__ import annotations

import pytest

from podwright.launcher.ending._launch_state_machine import LaunchMachine
from podwright.launcher.ending._launch_states import SLOW_START_SECONDS, LaunchFacts
from podwright.launcher.watchers import _launch_events as on


def launch(slow_start: float = SLOW_START_SECONDS) -> LaunchMachine:
    """A launch of two instances on one host whose mpirun starts at second 0."""
    facts = LaunchFacts(2, {}, {}, mpirun=True, grace=10.0, slow_start=slow_start)
    machine = LaunchMachine(facts, 0.0)
    machine.turn([on.EngineStarted(99)], 0.0)
    return machine


def warnings(actions: list[on.Action]) -> list[str]:
    return [action.text for action in actions if isinstance(action, on.Log) and action.level == "W"]


@pytest.mark.parametrize("slow_start", [SLOW_START_SECONDS, 3.0])
def test_the_warning_comes_once_and_says_what_to_do(slow_start: float) -> None:
    machine = launch(slow_start)
    assert machine.pause(0.0) <= slow_start
    assert warnings(machine.turn([], slow_start)) == []
    (warning,) = warnings(machine.turn([], slow_start + 0.1))
    assert f"mpirun has started no instance for {slow_start:g} s" in warning
    assert "press Ctrl-C and start again, or add --launcher=local" in warning
    assert warnings(machine.turn([], 10 * slow_start)) == []


def test_a_host_that_has_started_an_instance_is_not_said_to_hang() -> None:
    machine = launch()
    machine.turn([on.InstanceStarted(0, 100)], 1.0)
    assert warnings(machine.turn([], SLOW_START_SECONDS + 1)) == []


def test_a_launch_that_ends_is_not_warned_about() -> None:
    machine = launch()
    machine.turn([on.EndSignal(15, "SIGTERM")], 1.0)
    assert warnings(machine.turn([], SLOW_START_SECONDS + 1)) == []


def test_a_launch_says_that_its_partition_is_in_error_and_when_it_is_well_again() -> None:
    machine = launch()
    machine.turn([on.InstanceStarted(0, 100)], 1.0)
    assert warnings(machine.turn([on.PartitionFaulty("NMX-M differs")], 2.0)) == [
        "the partition is in error, and the program runs on: NMX-M differs"
    ]
    assert warnings(machine.turn([on.PartitionFaulty("")], 3.0)) == [
        "the partition is not in error any more"
    ]
