"""Stands for CUDA where there is no GPU: files are its memory, shared by all who run over them.

Each call does what the driver of gpu.py owes, between real processes. System tests copy this file
beside the models, which make it their stub's driver.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from zmqtriton_floor.datatypes import BY_NUMBER
from zmqtriton_floor.errors import Unavailable
from zmqtriton_stub.api import dlpack
from zmqtriton_stub.memory import gpu
from zmqtriton_stub.memory.gpu import DeviceSpan

ROOM = 1 << 30
STREAM = 77
#: The size of a cudaIpcMemHandle_t.
HANDLE_BYTES = 64


class HostGpu:
    """The driver of gpu.py."""

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        #: By address, what was allocated here and what was opened.
        self.allocated: dict[int, tuple[Any, Path]] = {}
        self.opened: dict[int, Any] = {}
        self.opens = 0
        #: GPUs that were waited for.
        self.settled: list[int] = []
        #: The streams that producers were asked to write before.
        self.streams: list[int] = []

    def allocate(self, number: int, size: int) -> int:
        path = self._directory / f"{number}-{uuid.uuid4().hex}"
        path.touch()
        os.truncate(path, size)
        memory = _map(path)
        address = _address(memory)
        self.allocated[address] = memory, path
        return address

    def free(self, number: int, address: int) -> None:
        self.allocated.pop(address)[1].unlink()

    def room(self, number: int) -> int:
        return ROOM

    def export(self, number: int, address: int) -> bytes:
        return b"host\0" + self.raw_handle(address)

    def raw_handle(self, address: int) -> bytes:
        """Return the bytes by which a client lends its memory."""
        return self.allocated[address][1].name.encode().ljust(HANDLE_BYTES, b"\0")

    def open(self, handle: bytes) -> tuple[int, int, int]:
        raw = handle.partition(b"\0")[2]
        if len(raw) != HANDLE_BYTES:
            raise Unavailable("the handle is not CUDA's")
        path = self._directory / raw.rstrip(b"\0").decode("ascii", "replace")
        try:
            memory = _map(path)
        except (OSError, ValueError) as error:
            raise Unavailable(f"no such memory: {error}") from None
        self.opens += 1
        address = _address(memory)
        self.opened[address] = memory
        return int(path.name.split("-")[0]), address, len(memory)

    def close(self, number: int, address: int) -> None:
        del self.opened[address]

    def copy(self, number: int, target: int, span: DeviceSpan) -> None:
        ctypes.memmove(target, span.address, span.size)

    def to_host(self, view: memoryview, span: DeviceSpan) -> None:
        view[:] = ctypes.string_at(span.address, span.size)

    def from_host(self, number: int, target: int, data: Any) -> None:
        ctypes.memmove(target, bytes(data), len(data))

    def settle(self, number: int) -> None:
        self.settled.append(number)

    def ask(self, source: Any, number: int) -> Any:
        self.streams.append(STREAM)
        return source.__dlpack__(stream=STREAM)

    def give(self, span: DeviceSpan, dtype: Any, shape: tuple[int, ...], max_version: Any) -> Any:
        capsule = numbers(span, dtype).reshape(shape).__dlpack__()
        # numpy makes none that lies on a GPU
        tensor = dlpack._tensor_of(capsule)
        tensor.device_type, tensor.device_id = dlpack.GPU, span.gpu
        return capsule


class OnGpu:
    """An array of another library, that lies on a GPU."""

    def __init__(self, array: Any, number: int = 0) -> None:
        self.span = gpu.uploaded(number, array.tobytes())
        self._array = array
        self.streams: list[Any] = []

    def __dlpack__(self, stream: Any = None) -> Any:
        self.streams.append(stream)
        array = self._array
        return gpu.driver().give(self.span, array.dtype, array.shape, None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.GPU, self.span.gpu


def contents(tensor: Any) -> Any:
    """The array of a tensor on a GPU, as another library gets it: over the same memory."""
    taken = dlpack.take(tensor.to_dlpack())
    return numbers(taken.array, BY_NUMBER[taken.datatype].numpy).reshape(taken.shape)


def on_cpu(array: Any) -> Any:
    return np.array(array)


def address(array: Any) -> int:
    return int(array.ctypes.data)


def give_back() -> None:
    """Nothing is held back here."""


def lose() -> None:
    """Do what a process does not get over: from here on CUDA's driver tells of nothing else."""
    ctypes.CDLL = lambda *_: LostCuda()  # type: ignore[assignment,misc]
    raise RuntimeError("an illegal memory access was encountered")


class LostCuda:
    """The driver in a process with one GPU, whose work ends with this error."""

    def __init__(self, code: int = 700) -> None:
        self.code = code

    def cuDeviceGet(self, device: Any, number: int) -> int:
        return 101 if number else 0

    def cuDevicePrimaryCtxGetState(self, device: Any, flags: Any, is_active: Any) -> int:
        is_active._obj.value = 1  # what `byref` was given, which has no other name
        return 0

    def cuDevicePrimaryCtxRetain(self, *_: Any) -> int:
        return 0

    cuCtxPushCurrent_v2 = cuCtxPopCurrent_v2 = cuDevicePrimaryCtxRelease_v2 = (
        cuDevicePrimaryCtxRetain
    )

    def cuStreamQuery(self, stream: None) -> int:
        return self.code


class _Memory:
    """A span as numpy wants it described."""

    def __init__(self, span: DeviceSpan, dtype: Any) -> None:
        self.span = span
        self.__array_interface__ = {
            "version": 3,
            "typestr": np.dtype(dtype).str,
            "shape": (span.size // np.dtype(dtype).itemsize,),
            "data": (span.address, False),
        }


def numbers(span: DeviceSpan, dtype: Any) -> Any:
    return np.asarray(_Memory(span, dtype))


def _map(path: Path) -> Any:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)


def _address(memory: Any) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))
