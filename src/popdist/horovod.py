"""Horovod's calls on popdist's collectives, for programs that were written for `horovod.torch`.

    import popdist.horovod as hvd      # was: import horovod.torch as hvd

    hvd.init()
    loss = hvd.allreduce(loss)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

The calls are those that Graphcore's public examples make of `horovod.torch` and `horovod.popart`,
with Horovod's names, defaults and results; horovod itself is not needed. Arrays of numpy and
tensors of torch can be given. A rank is an instance, and results are the same bits in every
instance (popdist.allReduceSum).

Every instance must make the same calls in the same order. Horovod matches calls by their `name`
instead, so `name` is accepted and not used.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from popdist import _environment as environment
from popdist._backend import finalizeBackend, init, isBackendInitialized
from popdist._collectives import Values, allGather, allReduceSum, as_array, barrier
from popdist._collectives import broadcast as _broadcast
from popdist._errors import BadUse

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "Average",
    "DistributedTrainingSession",
    "ReduceOp",
    "Sum",
    "allgather",
    "allreduce",
    "allreduce_",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_parameters",
    "broadcast_weights",
    "grouped_allreduce",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "shutdown",
    "size",
]


class ReduceOp(Enum):
    """How `allreduce` combines the values of all instances."""

    AVERAGE = "Average"
    SUM = "Sum"


Average, Sum = ReduceOp.AVERAGE, ReduceOp.SUM


def shutdown() -> None:
    """Leave the other instances, after waiting for them. A second call does nothing."""
    finalizeBackend()


def is_initialized() -> bool:
    """Return whether this instance has joined the others and not left them yet."""
    return isBackendInitialized()


def rank() -> int:
    """Return this instance's index among all; 0 without poprun.

    Raises NotUniform, BadEnvironment.
    """
    return environment.getInstanceIndex()


def size() -> int:
    """Return the number of instances; 1 without poprun. Raises NotUniform, BadEnvironment."""
    return environment.getNumInstances()


def local_rank() -> int:
    """Return this instance's index among those on its host; 0 without poprun.

    Raises BadEnvironment.
    """
    return environment.getLocalInstanceIndex()


def local_size() -> int:
    """Return the number of instances on this host (LOCAL_WORLD_SIZE); 1 without poprun.

    Raises BadEnvironment.
    """
    return environment.read_number("LOCAL_WORLD_SIZE", 1, least=1)


def allreduce(
    tensor: Values, average: bool | None = None, name: str | None = None, *, op: Any = None
) -> Any:
    """Return the average, or the sum, of `tensor` over all instances, as a new array or tensor.

    tensor: of one shape and dtype in all instances. op: Average (the default) or Sum. average:
    Horovod's older way to choose: True or False. Averages of integers are rounded down, as in
    Horovod. name: not used.

    Raises BadUse for another op and for op together with average. Raises as popdist.allReduceSum
    does.
    """
    reduce_op = _chosen_op(average, op)
    reduced = allReduceSum(tensor)
    if reduce_op is Sum:
        return reduced
    if _is_integer(reduced):
        reduced //= size()
    else:
        reduced /= size()
    return reduced


def allreduce_(
    tensor: Any, average: bool | None = None, name: str | None = None, *, op: Any = None
) -> Any:
    """Overwrite `tensor` with the result of `allreduce`, and return it."""
    return _overwrite(tensor, allreduce(tensor, average, name, op=op))


def grouped_allreduce(
    tensors: Sequence[Values],
    average: bool | None = None,
    name: str | None = None,
    *,
    op: Any = None,
) -> list[Any]:
    """Return `allreduce` of each of several tensors, in their order."""
    return [allreduce(tensor, average, name, op=op) for tensor in tensors]


def allgather(tensor: Values, name: str | None = None) -> Any:
    """Return the tensors of all instances, concatenated along their first dimension.

    tensor: its first dimension may differ from instance to instance; its other dimensions and its
    dtype may not. A scalar counts as a tensor of shape (1,). name: not used.

    Raises BadUse when other dimensions differ. Raises as popdist.allGather does.
    """
    import numpy as np

    array, to_original_form = as_array(tensor, "biufc", "gathers numbers and booleans")
    array = np.atleast_1d(array)
    row_counts = allGather(np.int64(len(array))).tolist()
    padded = np.zeros((max(row_counts), *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    gathered: NDArray[Any] = allGather(padded)
    parts = [part[:count] for part, count in zip(gathered, row_counts, strict=True)]
    return to_original_form(np.concatenate(parts))


def broadcast(tensor: Values, root_rank: int, name: str | None = None) -> Any:
    """Return the `tensor` of instance `root_rank`, in every instance, as a new array or tensor.

    The other instances pass one of the same shape and dtype. name: not used. Raises as
    popdist.broadcast does.
    """
    return _broadcast(tensor, root_rank)


def broadcast_(tensor: Any, root_rank: int, name: str | None = None) -> Any:
    """Overwrite `tensor` with the result of `broadcast`, and return it."""
    return _overwrite(tensor, _broadcast(tensor, root_rank))


def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[tuple[str, Any]], root_rank: int = 0
) -> None:
    """Overwrite the parameters of all instances with those of instance `root_rank`.

    params: a model's `state_dict()`, or pairs of name and tensor as from `named_parameters()`, the
    same in all instances. Raises as popdist.broadcast does.
    """
    named_tensors = sorted(params.items()) if isinstance(params, Mapping) else params
    for _, tensor in named_tensors:
        broadcast_(tensor, root_rank)


def DistributedTrainingSession(*, enableEngineCaching: bool = True, **options: Any) -> Any:
    """Return a popart.TrainingSession. options: as for popart.TrainingSession.

    enableEngineCaching: not used; `poprun --executable-cache-path` lets instances share what they
    compile. Raises ImportError without PopART.
    """
    import popart

    return popart.TrainingSession(**options)


def broadcast_weights(session: Any, root_rank: int = 0) -> None:
    """Overwrite the host weights of all PopART sessions with those of instance `root_rank`.

    session: a prepared popart.TrainingSession. Afterwards the program uploads its weights with
    `session.weightsFromHost()`, as after any change of them on the host. The weights travel as the
    ONNX model that `modelToHost` writes. That call reads them from the device, so the root uploads
    its own weights first.

    Raises as popdist.broadcast does.
    """
    import numpy as np

    with tempfile.TemporaryDirectory(prefix="popdist-weights-") as model_folder:
        model_path = os.path.join(model_folder, "weights.onnx")
        is_root = rank() == root_rank
        model_bytes = b""
        if is_root:
            session.weightsFromHost()
            session.modelToHost(model_path)
            with open(model_path, "rb") as model_file:
                model_bytes = model_file.read()
        model_length = int(_broadcast(np.int64(len(model_bytes)), root_rank))
        model_array = (
            np.frombuffer(model_bytes, np.uint8) if is_root else np.zeros(model_length, np.uint8)
        )
        received_model: NDArray[np.uint8] = _broadcast(model_array, root_rank)
        if not is_root:
            with open(model_path, "wb") as model_file:
                model_file.write(received_model.tobytes())
            session.resetHostWeights(model_path)


def _chosen_op(average: bool | None, op: Any) -> ReduceOp:
    if average is not None and op is not None:
        raise BadUse("allreduce: give either op or average")
    if op is None:
        return Sum if average is False else Average
    if op not in (Average, Sum):
        raise BadUse(f"allreduce: op is {op!r}; it can be Average or Sum")
    return ReduceOp(op)


def _is_integer(values: Any) -> bool:
    """Return whether a numpy array or a torch tensor has integers."""
    if hasattr(values, "is_floating_point"):
        return not (values.is_floating_point() or values.is_complex())
    return values.dtype.kind in "iu"


def _overwrite(tensor: Any, new_values: Any) -> Any:
    """Copy the values into a numpy array, or into a torch tensor outside its gradient."""
    array = tensor.data if hasattr(tensor, "is_floating_point") else tensor
    array[...] = new_values
    return tensor
