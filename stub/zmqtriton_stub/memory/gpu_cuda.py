"""The driver for real GPUs, by cupy; gpu.py loads it with the first tensor on a GPU.

Memory for other processes is allocated apart from cupy's pool, since CUDA shares whole allocations.
Knows neither tensors nor messages.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from typing import Any, Iterator

import cupy
import numpy as np

from zmqtriton_floor.errors import Unavailable
from zmqtriton_stub.memory import device_span

_HANDLE_BYTES = 64
_runtime: Any = cupy.cuda.runtime


class Cuda:
    """The driver of gpu.py. Thread-safe. A failure raises Unavailable.

    Copies are complete when they return.
    """

    def __init__(self) -> None:
        #: One for each GPU that no kernel of the model waits for.
        self._streams: dict[int, Any] = {}
        self._lock = threading.Lock()
        with _errors():
            if not _runtime.getDeviceCount():
                raise Unavailable("no GPU is visible; check CUDA_VISIBLE_DEVICES")

    # ---------------------------------------------------------------- memory

    def allocate(self, gpu: int, size: int) -> int:
        """Allocate memory that can be given to other processes; return its address."""
        with _on(gpu):
            address: int = _runtime.malloc(size)
        return address

    def free(self, gpu: int, address: int) -> None:
        """Free allocated memory."""
        with _on(gpu):
            _runtime.free(address)

    def room(self, gpu: int) -> int:
        """Return the size of the GPU's memory in bytes."""
        with _on(gpu):
            return int(_runtime.memGetInfo()[1])

    def export(self, gpu: int, address: int) -> bytes:
        """Return a handle that lets another process open memory allocated here."""
        with _on(gpu):
            # numbers of GPUs may differ between processes, by CUDA_VISIBLE_DEVICES
            name: str = _runtime.deviceGetPCIBusId(gpu)
            return name.encode() + b"\0" + bytes(_runtime.ipcGetMemHandle(address))

    def open(self, handle: bytes) -> tuple[int, int, int]:
        """Open another process's memory; return GPU, address, and its true size."""
        name, _, rest = handle.partition(b"\0")
        if len(rest) != _HANDLE_BYTES or not name.isascii():
            raise Unavailable("a tensor cannot be read: the handle is not CUDA's")
        with _errors():
            # a client says the number of its GPU, another stub where that one is
            is_number = name.isdigit()
            gpu: int = (
                device_span.number_here(int(name))
                if is_number
                else _runtime.deviceGetByPCIBusId(name.decode())
            )
        with _on(gpu):
            address: int = _runtime.ipcOpenMemHandle(rest)
            try:
                return gpu, address, _allocated(address)
            except BaseException:
                _runtime.ipcCloseMemHandle(address)
                raise

    def close(self, gpu: int, address: int) -> None:
        """Close opened memory."""
        with _on(gpu):
            _runtime.ipcCloseMemHandle(address)

    # ---------------------------------------------------------------- copies

    def copy(self, gpu: int, target: int, span: device_span.DeviceSpan) -> None:
        """Copy a span to an address on this GPU."""
        self._copy(gpu, target, span.address, span.size, _runtime.memcpyDefault)

    def to_host(self, view: memoryview, span: device_span.DeviceSpan) -> None:
        """Copy the content of a span to the CPU."""
        target = ctypes.addressof(ctypes.c_char.from_buffer(view)) if span.size else 0
        self._copy(span.gpu, target, span.address, span.size, _runtime.memcpyDeviceToHost)

    def from_host(self, gpu: int, target: int, data: Any) -> None:
        """Copy to an address on this GPU, from any buffer."""
        if len(data):
            # most are read-only, and have no address that ctypes would tell
            source: Any = np.frombuffer(data, np.uint8)
            self._copy(gpu, target, source.ctypes.data, source.nbytes, _runtime.memcpyHostToDevice)

    def _copy(self, gpu: int, target: int, source: int, size: int, kind: int) -> None:
        if size:
            stream = self._stream(gpu)
            with _on(gpu):
                _runtime.memcpyAsync(target, source, size, kind, stream.ptr)
                stream.synchronize()

    def settle(self, gpu: int) -> None:
        """Wait until everything that this process has started on the GPU has ended."""
        with _on(gpu):
            _runtime.deviceSynchronize()

    def _stream(self, gpu: int) -> Any:
        with self._lock:
            stream = self._streams.get(gpu)
            if stream is None:
                with _on(gpu):
                    stream = self._streams[gpu] = cupy.cuda.Stream(non_blocking=True)
            return stream

    # ---------------------------------------------------------------- dlpack

    def ask(self, source: Any, gpu: int) -> Any:
        """Return the capsule of an object with `__dlpack__`, once its content is written."""
        stream = self._stream(gpu)
        with _on(gpu):
            # the producer has the stream wait for everything that it has begun
            capsule = source.__dlpack__(stream=stream.ptr)
            stream.synchronize()
        return capsule

    def give(
        self, span: device_span.DeviceSpan, dtype: Any, shape: tuple[int, ...], max_version: Any
    ) -> Any:
        """Return a capsule over the span, which it keeps alive."""
        with _on(span.gpu):
            memory = cupy.cuda.UnownedMemory(span.address, span.size, span, span.gpu)
            array = cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))
            # nothing is being written to it, so no stream need wait
            if max_version is not None:
                # a cupy may know the older form only, which is always allowed
                with contextlib.suppress(TypeError):
                    return array.__dlpack__(stream=-1, max_version=max_version)
            return array.__dlpack__(stream=-1)


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (_runtime.CUDARuntimeError, MemoryError) as error:
        raise Unavailable(f"CUDA: {error}") from error


@contextlib.contextmanager
def _on(gpu: int) -> Iterator[None]:
    """Set the thread's current GPU within the block. CUDA's errors become Unavailable."""
    with _errors(), cupy.cuda.Device(gpu):
        yield


def _allocated(address: int) -> int:
    """Return the number of bytes from an address to the end of its memory, by CUDA's driver.

    The memory may begin earlier: CUDA opens the whole allocation that a small one is part of.
    """
    cuda = ctypes.CDLL("libcuda.so.1")
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    pointers = ctypes.byref(base), ctypes.byref(size)
    code = cuda.cuMemGetAddressRange_v2(*pointers, ctypes.c_uint64(address))
    end = base.value + size.value
    if code or not base.value <= address < end:
        raise Unavailable("a tensor cannot be read: its memory is no allocation of CUDA's")
    return end - address
