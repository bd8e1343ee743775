"""Stands for CUDA in a client where there is no GPU: the package `cuda.bindings` over host_gpu.py.

`tritonclient.utils.cuda_shared_memory` runs over it unchanged.
"""

from __future__ import annotations

import ctypes
import enum
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from tests.support.host_gpu import HANDLE_BYTES, HostGpu


class _Runtime(enum.Enum):
    cudaSuccess = 0
    cudaErrorInvalidValue = 1


class _Driver(enum.Enum):
    CUDA_SUCCESS = 0


class _Attribute(enum.Enum):
    cudaDevAttrUnifiedAddressing = 41


class _CopyKind(enum.Enum):
    cudaMemcpyDefault = 4


class _Handle:
    """A cudaIpcMemHandle_t."""

    def __init__(self, raw: bytes) -> None:
        self._buffer = ctypes.create_string_buffer(raw, HANDLE_BYTES)

    def getPtr(self) -> int:
        return ctypes.addressof(self._buffer)


class _Calls:
    """The functions; each returns its status and what else it has to say."""

    def __init__(self, gpu: HostGpu) -> None:
        self._gpu = gpu
        self._device = 0

    def cudaGetDevice(self) -> tuple[Any, int]:
        return _Runtime.cudaSuccess, self._device

    def cudaSetDevice(self, device: int) -> tuple[Any]:
        self._device = device
        return (_Runtime.cudaSuccess,)

    def cudaMalloc(self, size: int) -> tuple[Any, int]:
        return _Runtime.cudaSuccess, self._gpu.allocate(self._device, size)

    def cudaFree(self, address: int) -> tuple[Any]:
        self._gpu.free(self._device, address)
        return (_Runtime.cudaSuccess,)

    def cudaIpcGetMemHandle(self, address: int) -> tuple[Any, _Handle]:
        return _Runtime.cudaSuccess, _Handle(self._gpu.raw_handle(address))

    def cudaMemcpyAsync(self, target: Any, source: Any, size: int, *_: Any) -> tuple[Any]:
        ctypes.memmove(target, source, size)
        return (_Runtime.cudaSuccess,)

    def cudaStreamCreate(self) -> tuple[Any, object]:
        return _Runtime.cudaSuccess, object()

    def cudaStreamDestroy(self, stream: object) -> tuple[Any]:
        return (_Runtime.cudaSuccess,)

    def cudaStreamSynchronize(self, stream: object) -> tuple[Any]:
        return (_Runtime.cudaSuccess,)

    def cudaDeviceGetAttribute(self, attribute: Any, device: int) -> tuple[Any, int]:
        return _Runtime.cudaSuccess, 1

    def cudaGetErrorString(self, error: Any) -> tuple[Any, bytes]:
        return _Runtime.cudaSuccess, str(error.name).encode()

    def cuDeviceGet(self, device: int) -> tuple[Any, int]:
        return _Driver.CUDA_SUCCESS, device

    def cuDevicePrimaryCtxGetState(self, device: int) -> tuple[Any, int, int]:
        return _Driver.CUDA_SUCCESS, 0, 1


@contextmanager
def cuda_shared_memory(directory: Path) -> Iterator[Any]:
    """The module of tritonclient over files in this directory."""
    calls = _Calls(HostGpu(directory))
    names = [name for name in dir(calls) if name.startswith("cu")]
    functions: dict[str, Callable[..., Any]] = {name: getattr(calls, name) for name in names}
    runtime = _module(
        "cuda.bindings.runtime",
        **{name: call for name, call in functions.items() if name.startswith("cuda")},
        cudaError_t=_Runtime,
        cudaDeviceAttr=_Attribute,
        cudaMemcpyKind=_CopyKind,
        cudaIpcMemHandle_t=_Handle,
        CUDA_IPC_HANDLE_SIZE=HANDLE_BYTES,
    )
    driver = _module(
        "cuda.bindings.driver",
        **{name: call for name, call in functions.items() if not name.startswith("cuda")},
        CUresult=_Driver,
    )
    bindings = _module("cuda.bindings", runtime=runtime, driver=driver)
    modules = [_module("cuda", bindings=bindings), bindings, runtime, driver]
    with patch.dict(sys.modules, {module.__name__: module for module in modules}):
        import tritonclient.utils.cuda_shared_memory as client_module

        yield client_module


def _module(name: str, **members: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(members)
    return module
