"""popdist.horovod: Horovod's calls, alone and among several instances."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import popdist
import popdist.horovod as hvd
from popdist import BadUse
from tests.popdist.test_tcp import over_tcp

#: A PopART session with its weights on the host and on the device, as files hold them.
SESSION = """
class Session:
    def __init__(self, weights):
        self.host, self.device = weights, "nothing yet"
    def weightsFromHost(self):
        self.device = self.host
    def modelToHost(self, path):
        open(path, "w").write(self.device)
    def resetHostWeights(self, path):
        self.host = open(path).read()
"""
PROGRAM = (
    SESSION
    + """
import json, numpy as np
import popdist.horovod as hvd

hvd.init()
me = hvd.rank()
out = {"who": [me, hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.is_initialized()]}
out["average"] = hvd.allreduce(np.array([1.0, me], np.float32), name="loss").tolist()
out["rounded down"] = hvd.allreduce(np.array([me, -me])).tolist()
out["sum"] = hvd.allreduce(np.int64(me + 1), op=hvd.Sum).tolist()
out["not average"] = hvd.allreduce(np.ones(2), False).tolist()
several = hvd.grouped_allreduce([np.ones(1), np.full(2, me)], op=hvd.Sum)
out["grouped"] = [total.tolist() for total in several]
mine = np.full(2, float(me))
assert hvd.allreduce_(mine) is mine
out["in place"] = mine.tolist()
out["gathered"] = hvd.allgather(np.full((me, 2), me, np.int16)).tolist()
out["gathered scalars"] = hvd.allgather(me).tolist()
out["broadcast"] = hvd.broadcast(np.array([me]), root_rank=2).tolist()
assert hvd.broadcast_(mine, 1) is mine
parameters = {"b": np.full(1, me), "a": np.full(2, me)}
hvd.broadcast_parameters(parameters, root_rank=1)
out["parameters"] = [parameters["a"].tolist(), parameters["b"].tolist()]
pairs = [("w", np.full(1, me))]
hvd.broadcast_parameters(pairs)
out["pairs"] = pairs[0][1].tolist()
session = Session(f"weights of {me}")
hvd.broadcast_weights(session, root_rank=1)
out["weights"] = session.host
try:
    hvd.allgather(np.zeros((1, me + 1)))
except popdist.BadUse as error:
    out["other shapes"] = str(error)
hvd.barrier()
hvd.shutdown()
out["afterwards"] = hvd.is_initialized()
print(json.dumps(out))
"""
)


def test_every_call_among_three_instances(tmp_path: Path) -> None:
    program = "import popdist\n" + PROGRAM
    outcomes = over_tcp(tmp_path, program, 3, LOCAL_WORLD_SIZE="3")
    assert [code for code, _, _ in outcomes] == [0, 0, 0], outcomes
    results = [json.loads(out) for _, out, _ in outcomes]
    assert [r.pop("who") for r in results] == [[i, 3, i, 3, True] for i in range(3)]
    assert all("the same collective" in r.pop("other shapes") for r in results)
    expected = {
        "average": [1.0, 1.0],
        "rounded down": [1, -1],
        "sum": 6,
        "not average": [3.0, 3.0],
        "grouped": [[3.0], [3, 3]],
        "in place": [1.0, 1.0],
        "gathered": [[1, 1], [2, 2], [2, 2]],
        "gathered scalars": [0, 1, 2],
        "broadcast": [2],
        "parameters": [[1, 1], [1]],
        "pairs": [0],
        "weights": "weights of 1",
        "afterwards": False,
    }
    assert results == [expected] * 3


def test_a_program_that_is_alone() -> None:
    hvd.init()
    assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()) == (0, 1, 0, 1)
    values = np.array([3, 4])
    assert hvd.allreduce(values).tolist() == [3, 4]
    assert hvd.allgather(values).tolist() == [3, 4]
    assert hvd.broadcast(values, 0).tolist() == [3, 4]
    hvd.barrier()
    hvd.shutdown()
    assert not popdist.isBackendInitialized()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"op": hvd.Sum, "average": True}, "either op or average"),
        ({"op": "Max"}, "op is 'Max'; it can be Average or Sum"),
    ],
)
def test_what_cannot_be_reduced_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadUse, match=message):
        hvd.allreduce(np.ones(1), **options)


def test_a_training_session_is_poparts(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(TrainingSession=lambda **options: options)
    monkeypatch.setitem(__import__("sys").modules, "popart", module)
    assert hvd.DistributedTrainingSession(enableEngineCaching=False, loss="l") == {"loss": "l"}


def test_all_that_is_listed_is_there() -> None:
    assert all(getattr(hvd, name).__doc__ for name in hvd.__all__ if name[0].islower())
