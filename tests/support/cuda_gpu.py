"""The names of host_gpu.py over a real GPU, by cupy; system tests put it in that one's place."""

from __future__ import annotations

from typing import Any

import cupy

from zmqtriton_stub.memory.gpu_cuda import Cuda


def HostGpu(directory: str) -> Cuda:
    return Cuda()


def OnGpu(array: Any, number: int = 0) -> Any:
    with cupy.cuda.Device(number):
        return cupy.asarray(array)


def contents(tensor: Any) -> Any:
    return cupy.from_dlpack(tensor)


def on_cpu(array: Any) -> Any:
    return cupy.asnumpy(array)


def address(array: Any) -> int:
    return int(array.data.ptr)


def give_back() -> None:
    cupy.get_default_memory_pool().free_all_blocks()


def lose() -> None:
    code = 'extern "C" __global__ void write(int *place) { *place = 1; }'
    cupy.RawKernel(code, "write")((1,), (1,), (cupy.uint64(8),))
    cupy.cuda.Device().synchronize()
