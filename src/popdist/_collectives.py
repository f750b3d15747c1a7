"""Sums, gathers, broadcasts and barriers of arrays and tensors over all instances.

Values are numpy arrays, or torch tensors, which come back as tensors on their device. Data goes
through host memory. Every instance must call the same collectives in the same order, with arrays of
one shape and dtype. Each call compares these first, so that a mistake is an error in every instance
and not a crash in one of them.

Results are bitwise equal in every instance, and in every run with the same number of instances,
whatever order the MPI library would use for its additions: each instance sums one part, in the
order of instances, and the parts are then gathered. The buffer of the parts becomes the result, so
that no copy of the whole array is made. Each instance moves twice the size of the array, whatever
the number of instances, as in the usual ring algorithm.

Names follow popdist's C++ API (allReduceSum, allGather, broadcast). The Python form is our choice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias
from zlib import crc32

from popdist._backend import Communicator
from popdist._errors import BadUse
from popdist._instance_groups import Group, group
from popdist._trace_events import open_records

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from popdist._trace_records import Records

#: Values that can become an array, or a torch tensor. torch has no types where it is not installed.
Values: TypeAlias = "ArrayLike | Any"


def allReduceSum(values: Values) -> Any:
    """Return the sum of `values` over all instances: a new array of the same shape and dtype.

    values: an array or scalar of integers, floats or complex numbers, of one shape and dtype in all
    instances. Sums are made in that dtype; integers wrap around.

    Raises BadUse for other dtypes and when instances differ, and NotInitialized.

    >>> popdist.allReduceSum(np.ones(3))
    array([1., 1., 1.])
    """
    array, to_original_form = as_array(values, "iufc", "sums numbers")
    participants = group()
    if participants.communicator is None:
        return to_original_form(array.copy())
    records = open_records()
    began_at = records.begin() if records else 0
    _check_same_call(participants.communicator, "allReduceSum", array)
    total = _sum_in_order(participants.communicator, array)
    if records:
        _record_collective(records, b"allReduceSum", began_at, participants, array.nbytes)
    return to_original_form(total)


def allGather(values: Values) -> Any:
    """Return the `values` of all instances, of shape (instances, *values.shape) and equal dtype.

    values: an array or scalar of numbers or booleans, of one shape and dtype in all instances.

    Raises BadUse for other dtypes and when instances differ, and NotInitialized.

    >>> popdist.allGather(np.arange(3)).shape
    (1, 3)
    """
    import numpy as np

    array, to_original_form = as_array(values, "biufc", "gathers numbers and booleans")
    participants = group()
    if participants.communicator is None:
        return to_original_form(array[np.newaxis].copy())
    records = open_records()
    began_at = records.begin() if records else 0
    _check_same_call(participants.communicator, "allGather", array)
    gathered = np.empty((participants.communicator.size, *array.shape), array.dtype)
    participants.communicator.Allgather(_bytes_view(array), _bytes_view(gathered))
    if records:
        _record_collective(records, b"allGather", began_at, participants, array.nbytes)
    return to_original_form(gathered)


def broadcast(values: Values, root: int | None = None) -> Any:
    """Return the `values` of instance `root`, in every instance, as a new array.

    values: an array or scalar of numbers or booleans. The other instances pass one of the same
    shape and dtype, whose contents do not matter. root: an instance; by default the lowest that
    takes part.

    Raises BadUse for other dtypes, for a root that takes no part, and when instances differ. Raises
    NotInitialized.

    >>> popdist.broadcast(np.arange(3), root=0)
    array([0, 1, 2])
    """
    array, to_original_form = as_array(values, "biufc", "sends numbers and booleans")
    array = array.copy()
    participants = group()
    root_rank = _root_rank(root, participants)
    if participants.communicator is None:
        return to_original_form(array)
    records = open_records()
    began_at = records.begin() if records else 0
    _check_same_call(participants.communicator, f"broadcast from {root}", array)
    participants.communicator.Bcast(_bytes_view(array), root_rank)
    if records:
        _record_collective(records, b"broadcast", began_at, participants, array.nbytes)
    return to_original_form(array)


def barrier() -> None:
    """Wait until all instances have called it. Raises NotInitialized.

    >>> popdist.barrier()
    """
    participants = group()
    if participants.communicator is not None:
        records = open_records()
        began_at = records.begin() if records else 0
        participants.communicator.Barrier()
        if records:
            _record_collective(records, b"barrier", began_at, participants, 0)


def _record_collective(
    records: Records, collective_name: bytes, began_at: int, participants: Group, byte_count: int
) -> None:
    assert participants.communicator is not None
    checksum = 0 if participants.instances is None else crc32(repr(participants.instances).encode())
    records.collective(
        collective_name, began_at, byte_count, checksum, participants.communicator.size
    )


def _sum_in_order(communicator: Communicator, array: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    count = communicator.size
    size = -(-array.size // count)
    send_parts = array.reshape(-1)
    if padding := size * count - array.size:
        send_parts = np.concatenate([send_parts, np.zeros(padding, array.dtype)])
    received_parts = np.empty((count, size), array.dtype)
    communicator.Alltoall(_bytes_view(send_parts), _bytes_view(received_parts))
    part_sum = received_parts[0].copy()  # the buffer around it takes the result
    for part in received_parts[1:]:
        part_sum += part
    communicator.Allgather(_bytes_view(part_sum), _bytes_view(received_parts))
    return received_parts.reshape(-1)[: array.size].reshape(array.shape)


def as_array(
    values: Values, dtype_kinds: str, action_text: str
) -> tuple[NDArray[Any], Callable[[NDArray[Any]], Any]]:
    """Return the values as an array, and a function that turns a result into an array or a tensor.

    The result has the form of the values: an array for an array, a tensor on its device for a
    tensor.
    """
    import numpy as np

    like: Callable[[NDArray[Any]], Any] = _return_array
    torch = sys.modules.get("torch")  # without torch, no value is a tensor
    if torch is not None and isinstance(values, torch.Tensor):
        device, dtype = values.device, values.dtype
        try:
            values = values.detach().cpu().resolve_conj().resolve_neg().numpy()
        except TypeError:
            raise BadUse(f"popdist {action_text}, not {dtype}: numpy has nothing like it") from None

        def like(result: NDArray[Any]) -> Any:
            return torch.from_numpy(result).to(device)

    array = np.asarray(values, order="C")
    if array.dtype.kind not in dtype_kinds or not array.dtype.isnative:
        raise BadUse(f"popdist {action_text}, not {array.dtype}")
    return array, like


def _return_array(result: NDArray[Any]) -> NDArray[Any]:
    return result


def _check_same_call(communicator: Communicator, collective: str, array: NDArray[Any]) -> None:
    """Raise BadUse in all instances unless all calls agree in collective, shape and dtype."""
    import numpy as np

    own_call = f"{collective} of {array.dtype} {array.shape}"
    call_checksums = np.empty(communicator.size, np.uint32)
    communicator.Allgather(np.full(1, crc32(own_call.encode()), np.uint32), call_checksums)
    if (call_checksums == call_checksums[0]).all():
        return
    all_calls = communicator.allgather(own_call)
    first_call = all_calls[0]
    instance_index, other_call = next(
        (call_index, call) for call_index, call in enumerate(all_calls) if call != first_call
    )
    raise BadUse(
        "the instances must call the same collective with the same shape and dtype: the first "
        f"called {first_call}, number {instance_index} of those that take part called {other_call}"
    )


def _root_rank(root: int | None, participants: Group) -> int:
    if root is None:
        return 0
    instances = participants.instances
    if instances is None:
        assert participants.communicator is not None
        instances = tuple(range(participants.communicator.size))
    if root not in instances:
        raise BadUse(f"broadcast: instance {root} takes no part here, only {list(instances)}")
    return instances.index(root)


def _bytes_view(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of a C-ordered array.

    MPI moves bytes for any dtype; it has no name for float16.
    """
    import numpy as np

    return array.reshape(-1).view(np.uint8)
