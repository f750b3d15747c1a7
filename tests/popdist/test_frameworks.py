"""What programs for IPUs import of popdist: there, and saying what is missing where it is."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

FOUR_REPLICAS = {
    "POPDIST_NUM_TOTAL_REPLICAS": "8",
    "POPDIST_NUM_LOCAL_REPLICAS": "4",
    "POPDIST_NUM_IPUS_PER_REPLICA": "2",
    "POPDIST_REPLICA_INDEX_OFFSET": "4",
    "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "1",
}


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is instance 1 of 2."""
    for name, value in FOUR_REPLICAS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(autouse=True)
def afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("poptorch", "tensorflow", "popart"):
        monkeypatch.delitem(sys.modules, f"popdist.{name}", raising=False)


class Distributed:
    """As poptorch.options has it."""

    ids: tuple[int, int] | None = None

    def configureProcessId(self, at: int, count: int) -> None:
        self.ids = at, count

    def disable(self) -> None:
        self.ids = None

    def setEnvVarNames(self, *_: str) -> None:
        pass


class PoptorchOptions:
    """As poptorch has it."""

    def __init__(self) -> None:
        self.Distributed = Distributed()
        self.said: dict[str, int] = {}

    def useIpuId(self, number: int) -> PoptorchOptions:
        self.said["id"] = number
        return self

    def replicationFactor(self, number: int) -> PoptorchOptions:
        self.said["replicas"] = number
        return self


@pytest.mark.parametrize(
    ("name", "missing"),
    [("poptorch", "PopTorch"), ("tensorflow", "Graphcore's TensorFlow"), ("popart", "PopART")],
)
def test_what_is_missing_is_said(name: str, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=f"needs {missing}, which comes with the Poplar SDK"):
        importlib.import_module(f"popdist.{name}")


def test_options_of_poptorch(second: None, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("poptorch")
    module.Options = PoptorchOptions
    monkeypatch.setitem(sys.modules, "poptorch", module)
    made = importlib.import_module("popdist.poptorch").Options(ipus_per_replica=2)
    assert made.said == {"id": 29, "replicas": 4}  # 16 single devices, 8 pairs, ...
    assert made.Distributed.ids == (1, 2)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: made.useIpuId(3),
        lambda: made.replicationFactor(2),
        lambda: made.Distributed.disable(),
        lambda: made.Distributed.setEnvVarNames("A", "B"),
        lambda: made.Distributed.configureProcessId(0, 1),
    )
    for call in calls:
        with pytest.raises(RuntimeError, match="Cannot call `"):
            call()
    with pytest.raises(RuntimeError, match="--ipus-per-replica=2"):
        importlib.import_module("popdist.poptorch").Options(ipus_per_replica=1)


def test_options_of_poptorch_without_poprun(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("poptorch")
    module.Options = PoptorchOptions
    monkeypatch.setitem(sys.modules, "poptorch", module)
    made = importlib.import_module("popdist.poptorch").Options()
    assert made.said == {"replicas": 1}
    assert made.Distributed.ids == (0, 1)


def test_configuration_of_tensorflow(second: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tensorflow", "tensorflow.python", "tensorflow.python.ipu"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    config = SimpleNamespace(
        experimental=SimpleNamespace(multi_replica_distribution=SimpleNamespace())
    )
    module = importlib.import_module("popdist.tensorflow")
    module.set_ipu_config(config, ipus_per_replica=2, configure_device=False)
    assert not hasattr(config, "select_ipus")
    module.set_ipu_config(config, ipus_per_replica=2)
    several = config.experimental.multi_replica_distribution
    assert (several.process_index, several.process_count, config.select_ipus) == (1, 2, 29)
    with pytest.raises(RuntimeError, match="--ipus-per-replica=2"):
        module.set_ipu_config(config, ipus_per_replica=4)


def test_session_and_device_of_popart(second: None, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("popart")
    acquired: list[tuple[int, str]] = []
    module.DeviceConnectionType = SimpleNamespace(OnDemand="on demand")
    module.DeviceManager = lambda: SimpleNamespace(
        acquireDeviceById=lambda number, connectionType: acquired.append((number, connectionType))
    )
    monkeypatch.setitem(sys.modules, "popart", module)
    found = importlib.import_module("popdist.popart")
    options = SimpleNamespace()
    found.configureSessionOptions(options)
    assert vars(options) == {
        "enableReplicatedGraphs": True,
        "replicatedGraphCount": 4,
        "enableDistributedReplicatedGraphs": True,
        "globalReplicaOffset": 4,
        "globalReplicationFactor": 8,
    }
    found.getDevice(2)
    assert acquired == [(29, "on demand")]
