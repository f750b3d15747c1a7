"""A CUDA program without a toolkit: it computes on one GPU by the driver's library alone.

It waits for a line, computes, prints one line of JSON, and keeps its memory until its input ends.
A failed call prints `{"call": NAME, "error": NUMBER}`. Numbers are those of CUresult in cuda.h.
"""

from __future__ import annotations

import ctypes
import json
import sys
import uuid
from typing import Any

_COUNT, _FACTOR = 1 << 20, 3
#: y[i] = 3 * i, for one block of threads after the other.
_PTX = b"""
.version 6.4
.target sm_75
.address_size 64
.visible .entry triple(.param .u64 out)
{
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    mul.lo.s32 %r5, %r4, 3;
    mul.wide.u32 %rd2, %r4, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r5;
    ret;
}
"""


class CudaError(Exception):
    """A call of the driver failed."""

    def __init__(self, call: str, number: int) -> None:
        super().__init__(f"{call}: CUresult {number}")
        self.call, self.number = call, number


class Cuda:
    """The driver's library. Every call raises CudaError."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._library, name)

        def call(*arguments: Any) -> None:
            if number := function(*arguments):
                raise CudaError(name, number)

        return call


def compute() -> dict[str, object]:
    """Compute triples of the first million numbers on the first GPU, and check them here."""
    cuda = Cuda()
    device, context = ctypes.c_int(), ctypes.c_void_p()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    memory, identity = ctypes.c_uint64(), (ctypes.c_ubyte * 16)()
    cuda.cuInit(0)
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    cuda.cuDeviceGetUuid(identity, device)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    cuda.cuCtxSetCurrent(context)
    cuda.cuModuleLoadData(ctypes.byref(module), _PTX)
    cuda.cuModuleGetFunction(ctypes.byref(function), module, b"triple")
    size = 4 * _COUNT
    cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(size))
    pointers = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(memory), ctypes.c_void_p))
    cuda.cuLaunchKernel(function, _COUNT // 256, 1, 1, 256, 1, 1, 0, None, pointers, None)
    cuda.cuCtxSynchronize()
    numbers = (ctypes.c_uint32 * _COUNT)()
    cuda.cuMemcpyDtoH_v2(numbers, memory, ctypes.c_size_t(size))
    right = all(number == _FACTOR * place for place, number in enumerate(numbers))
    return {"uuid": f"GPU-{uuid.UUID(bytes=bytes(identity))}", "right": right, "bytes": size}


def main() -> int:
    """Returns 1 where a call failed or the GPU computed something else."""
    sys.stdin.readline()
    try:
        outcome = compute()
    except CudaError as error:
        outcome = {"call": error.call, "error": error.number}
    print(json.dumps(outcome), flush=True)
    sys.stdin.read()
    return 0 if outcome.get("right") else 1


if __name__ == "__main__":
    sys.exit(main())
