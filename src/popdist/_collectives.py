"""Sums, gathers, broadcasts and barriers of arrays and tensors over all instances.

Values are numpy arrays, or torch tensors, which come back as tensors on their device. Data goes
through host memory. Every instance must call the same collectives in the same order, with arrays of
one shape and dtype. Each call compares these first, so that a mistake is an error in every instance
and not a crash in one of them.

Results are bitwise equal in every instance, and in every run with the same number of instances,
whatever order the MPI library would use for its additions: each instance sums one part, in the
order of instances, and the parts are then gathered. Each instance moves twice the size of the
array, whatever the number of instances, as in the usual ring algorithm.

Names follow popdist's C++ API (allReduceSum, allGather, broadcast). The Python form is our choice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias
from zlib import crc32

from popdist._backend import Communicator
from popdist._errors import BadUse
from popdist._scope import Group, group
from popdist._trace import open_records

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from popdist._records import Records

#: Values that can become an array, or a torch tensor. torch has no types where it is not installed.
Values: TypeAlias = "ArrayLike | Any"


def allReduceSum(values: Values) -> Any:
    """Return the sum of `values` over all instances: a new array of the same shape and dtype.

    values: an array or scalar of integers, floats or complex numbers, of one shape and dtype in all
    instances. Sums are made in that dtype; integers wrap around.

    Raises BadUse for other dtypes and when instances differ, and NotInitialized.
    """
    array, like = as_array(values, "iufc", "sums numbers")
    communicator = group()
    if communicator.communicator is None:
        return like(array.copy())
    records = open_records()
    began = records.begin() if records else 0
    _check_same_call(communicator.communicator, "allReduceSum", array)
    total = _sum_in_order(communicator.communicator, array)
    if records:
        _record(records, b"allReduceSum", began, communicator, array.nbytes)
    return like(total)


def allGather(values: Values) -> Any:
    """Return the `values` of all instances, of shape (instances, *values.shape) and equal dtype.

    values: an array or scalar of numbers or booleans, of one shape and dtype in all instances.

    Raises BadUse for other dtypes and when instances differ, and NotInitialized.
    """
    import numpy as np

    array, like = as_array(values, "biufc", "gathers numbers and booleans")
    communicator = group()
    if communicator.communicator is None:
        return like(array[np.newaxis].copy())
    records = open_records()
    began = records.begin() if records else 0
    _check_same_call(communicator.communicator, "allGather", array)
    out = np.empty((communicator.communicator.size, *array.shape), array.dtype)
    communicator.communicator.Allgather(_raw(array), _raw(out))
    if records:
        _record(records, b"allGather", began, communicator, array.nbytes)
    return like(out)


def broadcast(values: Values, root: int | None = None) -> Any:
    """Return the `values` of instance `root`, in every instance, as a new array.

    values: an array or scalar of numbers or booleans. The other instances pass one of the same
    shape and dtype, whose contents do not matter. root: an instance; by default the lowest that
    takes part.

    Raises BadUse for other dtypes, for a root that takes no part, and when instances differ. Raises
    NotInitialized.
    """
    array, like = as_array(values, "biufc", "sends numbers and booleans")
    array = array.copy()
    communicator = group()
    rank = _rank_of(root, communicator)
    if communicator.communicator is None:
        return like(array)
    records = open_records()
    began = records.begin() if records else 0
    _check_same_call(communicator.communicator, f"broadcast from {root}", array)
    communicator.communicator.Bcast(_raw(array), rank)
    if records:
        _record(records, b"broadcast", began, communicator, array.nbytes)
    return like(array)


def barrier() -> None:
    """Wait until all instances have called it. Raises NotInitialized."""
    communicator = group()
    if communicator.communicator is not None:
        records = open_records()
        began = records.begin() if records else 0
        communicator.communicator.Barrier()
        if records:
            _record(records, b"barrier", began, communicator, 0)


def _record(records: Records, name: bytes, began: int, communicator: Group, size: int) -> None:
    assert communicator.communicator is not None
    checksum = 0 if communicator.instances is None else crc32(repr(communicator.instances).encode())
    records.collective(name, began, size, checksum, communicator.communicator.size)


def _sum_in_order(communicator: Communicator, array: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    n = communicator.size
    part = -(-array.size // n)
    sent = np.zeros((n, part), array.dtype)
    sent.reshape(-1)[: array.size] = array.reshape(-1)
    got = np.empty_like(sent)
    communicator.Alltoall(_raw(sent), _raw(got))
    total = got[0]
    for other in got[1:]:
        total += other
    communicator.Allgather(_raw(total), _raw(sent))
    return sent.reshape(-1)[: array.size].reshape(array.shape).copy()


def as_array(
    values: Values, kinds: str, does: str
) -> tuple[NDArray[Any], Callable[[NDArray[Any]], Any]]:
    """Return the values as an array, and a function that turns a result into an array or a tensor.

    The result has the form of the values: an array for an array, a tensor on its device for a
    tensor.
    """
    import numpy as np

    like: Callable[[NDArray[Any]], Any] = _same
    torch = sys.modules.get("torch")  # without torch, no value is a tensor
    if torch is not None and isinstance(values, torch.Tensor):
        device, dtype = values.device, values.dtype
        try:
            values = values.detach().cpu().resolve_conj().resolve_neg().numpy()
        except TypeError:
            raise BadUse(f"popdist {does}, not {dtype}: numpy has nothing like it") from None

        def like(result: NDArray[Any]) -> Any:
            return torch.from_numpy(result).to(device)

    array = np.asarray(values, order="C")
    if array.dtype.kind not in kinds or not array.dtype.isnative:
        raise BadUse(f"popdist {does}, not {array.dtype}")
    return array, like


def _same(result: NDArray[Any]) -> NDArray[Any]:
    return result


def _check_same_call(communicator: Communicator, collective: str, array: NDArray[Any]) -> None:
    """Raise BadUse in all instances unless all calls agree in collective, shape and dtype."""
    import numpy as np

    own_call = f"{collective} of {array.dtype} {array.shape}"
    ours = np.empty(communicator.size, np.uint32)
    communicator.Allgather(np.full(1, crc32(own_call.encode()), np.uint32), ours)
    if (ours == ours[0]).all():
        return
    calls = communicator.allgather(own_call)
    first = calls[0]
    index, other = next((i, call) for i, call in enumerate(calls) if call != first)
    raise BadUse(
        "the instances must call the same collective with the same shape and dtype: the first "
        f"called {first}, number {index} of those that take part called {other}"
    )


def _rank_of(root: int | None, communicator: Group) -> int:
    if root is None:
        return 0
    instances = communicator.instances
    if instances is None:
        assert communicator.communicator is not None
        instances = tuple(range(communicator.communicator.size))
    if root not in instances:
        raise BadUse(f"broadcast: instance {root} takes no part here, only {list(instances)}")
    return instances.index(root)


def _raw(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of a C-ordered array.

    MPI moves bytes for any dtype; it has no name for float16.
    """
    import numpy as np

    return array.reshape(-1).view(np.uint8)
