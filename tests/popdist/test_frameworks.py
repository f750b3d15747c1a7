"""torch.distributed and JAX in one call: what they are told. (The real torch: tests/outer.)"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from popdist import BadEnvironment


class Calls:
    """Remembers what it was called with."""

    def __init__(self) -> None:
        self.seen: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self.seen.append((args, kwargs))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """In place of both frameworks' own calls."""
    found = Calls()
    for name, call in (("torch", "init_process_group"), ("jax", "initialize")):
        framework, distributed = ModuleType(name), ModuleType(f"{name}.distributed")
        setattr(distributed, call, found)
        distributed.HashStore = lambda: "store"  # type: ignore[attr-defined]
        framework.distributed = distributed  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, framework)
        monkeypatch.setitem(sys.modules, f"{name}.distributed", distributed)
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    return found


@pytest.fixture
def second_of_three(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> Calls:
    values = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return calls


def test_torch_among_several(second_of_three: Calls) -> None:
    import popdist.torch

    assert popdist.torch.init_process_group("gloo", timeout=3) == (1, 3)
    assert second_of_three.seen == [(("gloo",), {"rank": 1, "world_size": 3, "timeout": 3})]


def test_torch_alone(calls: Calls) -> None:
    import popdist.torch

    assert popdist.torch.init_process_group() == (0, 1)
    assert calls.seen == [((None,), {"store": "store", "rank": 0, "world_size": 1})]


def test_jax_among_several(second_of_three: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    import popdist.jax

    assert popdist.jax.initialize(local_device_ids=[0]) == (1, 3)
    monkeypatch.setenv("MASTER_ADDR", "fd00::1")
    popdist.jax.initialize()
    told = [kwargs for _, kwargs in second_of_three.seen]
    same = {"num_processes": 3, "process_id": 1}
    assert told == [
        {"coordinator_address": "10.0.0.1:29500", **same, "local_device_ids": [0]},
        {"coordinator_address": "[fd00::1]:29500", **same},
    ]


def test_jax_alone_needs_nothing(calls: Calls) -> None:
    import popdist.jax

    assert popdist.jax.initialize() == (0, 1)
    assert calls.seen == []


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("RANK", "3", "RANK='3': expected a whole number from 0 to 2"),
        ("MASTER_PORT", "high", "MASTER_PORT='high'"),
        ("MASTER_ADDR", "", "MASTER_ADDR is not set"),
        ("WORLD_SIZE", "0", "WORLD_SIZE='0'"),
    ],
)
def test_launchers_that_contradict_themselves(
    second_of_three: Calls, monkeypatch: pytest.MonkeyPatch, name: str, value: str, why: str
) -> None:
    import popdist.torch

    monkeypatch.setenv(name, value)
    with pytest.raises(BadEnvironment, match=why):
        popdist.torch.init_process_group()
    assert second_of_three.seen == []
