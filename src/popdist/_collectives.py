"""Sums, gathers, broadcasts and barriers of arrays and tensors over all instances.

Arrays of numpy, or tensors of torch, which come back as tensors on their device; data goes
through host memory. Every instance must call the same collective in the same order, with arrays
of one shape and dtype; each call compares them first, so that a mistake is an error in every
instance and not a crash in one of them.

Results are the same bits in every instance and in every run with as many of them, however the
MPI library would order its additions: each instance sums one part, in the order of instances,
and the parts are then gathered. Per instance that moves twice the array, whatever the number
of instances, like the usual ring.

Names: popdist's C++ API (allReduceSum, allGather, broadcast). The Python form is our choice.
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

#: What can become an array; or a tensor of torch, which has no types where it is not installed.
Values: TypeAlias = "ArrayLike | Any"


def allReduceSum(values: Values) -> Any:
    """The sum of `values` over all instances: a new array of the same shape and dtype.

    values: an array or scalar of integers, floats or complex numbers, of one shape and dtype in
    all instances. Sums are made in that dtype, integers wrap around.

    Raises BadUse for other dtypes and when instances differ, NotInitialized.
    """
    array, like = _checked(values, "iufc", "sums numbers")
    here = group()
    if here.communicator is None:
        return like(array.copy())
    records = open_records()
    began = records.begin() if records else 0
    _check_same_call(here.communicator, "allReduceSum", array)
    total = _sum_in_order(here.communicator, array)
    if records:
        _record(records, b"allReduceSum", began, here, array.nbytes)
    return like(total)


def allGather(values: Values) -> Any:
    """The `values` of all instances: an array of shape (instances, *values.shape), same dtype.

    values: an array or scalar of numbers or booleans, of one shape and dtype in all instances.

    Raises BadUse for other dtypes and when instances differ, NotInitialized.
    """
    import numpy as np

    array, like = _checked(values, "biufc", "gathers numbers and booleans")
    here = group()
    if here.communicator is None:
        return like(array[np.newaxis].copy())
    records = open_records()
    began = records.begin() if records else 0
    _check_same_call(here.communicator, "allGather", array)
    out = np.empty((here.communicator.size, *array.shape), array.dtype)
    here.communicator.Allgather(_raw(array), _raw(out))
    if records:
        _record(records, b"allGather", began, here, array.nbytes)
    return like(out)


def broadcast(values: Values, root: int | None = None) -> Any:
    """The `values` of instance `root`, in every instance: a new array.

    values: an array or scalar of numbers or booleans; the others pass one of the same shape and
    dtype, whose contents do not matter. root: an instance, by default the lowest that takes part.

    Raises BadUse for other dtypes, a root that takes no part, and when instances differ,
    NotInitialized.
    """
    array, like = _checked(values, "biufc", "sends numbers and booleans")
    array = array.copy()
    here = group()
    rank = _rank_of(root, here)
    if here.communicator is None:
        return like(array)
    records = open_records()
    began = records.begin() if records else 0
    _check_same_call(here.communicator, f"broadcast from {root}", array)
    here.communicator.Bcast(_raw(array), rank)
    if records:
        _record(records, b"broadcast", began, here, array.nbytes)
    return like(array)


def barrier() -> None:
    """Wait until all instances are here. Raises NotInitialized."""
    here = group()
    if here.communicator is not None:
        records = open_records()
        began = records.begin() if records else 0
        here.communicator.Barrier()
        if records:
            _record(records, b"barrier", began, here, 0)


def _record(records: Records, name: bytes, began: int, here: Group, size: int) -> None:
    assert here.communicator is not None
    some = 0 if here.instances is None else crc32(repr(here.instances).encode())
    records.collective(name, began, size, some, here.communicator.size)


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


def _checked(
    values: Values, kinds: str, does: str
) -> tuple[NDArray[Any], Callable[[NDArray[Any]], Any]]:
    """The values as an array, and how a result becomes what they are: an array, or a tensor."""
    import numpy as np

    like: Callable[[NDArray[Any]], Any] = _same
    torch = sys.modules.get("torch")  # who has no torch has no tensors
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


def _check_same_call(communicator: Communicator, what: str, array: NDArray[Any]) -> None:
    """Every instance calls the same, with the same shape and dtype, or all raise BadUse."""
    import numpy as np

    mine = f"{what} of {array.dtype} {array.shape}"
    ours = np.empty(communicator.size, np.uint32)
    communicator.Allgather(np.full(1, crc32(mine.encode()), np.uint32), ours)
    if (ours == ours[0]).all():
        return
    calls = communicator.allgather(mine)
    first = calls[0]
    index, other = next((i, call) for i, call in enumerate(calls) if call != first)
    raise BadUse(
        "the instances must call the same collective with the same shape and dtype: the first "
        f"called {first}, number {index} of those that take part called {other}"
    )


def _rank_of(root: int | None, here: Group) -> int:
    if root is None:
        return 0
    instances = here.instances
    if instances is None:
        assert here.communicator is not None
        instances = tuple(range(here.communicator.size))
    if root not in instances:
        raise BadUse(f"broadcast: instance {root} takes no part here, only {list(instances)}")
    return instances.index(root)


def _raw(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of a C-ordered array: MPI moves them whatever the dtype (float16 has no name)."""
    import numpy as np

    return array.reshape(-1).view(np.uint8)
