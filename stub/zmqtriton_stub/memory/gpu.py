"""GPU memory as the stub knows it, and the driver that works with it.

Imported by all who hold tensors, so it costs nothing: the driver is loaded when the first tensor on
a GPU is met. Without cupy or a GPU there is none, and whoever needs it is told so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zmqtriton_floor.errors import Unavailable
from zmqtriton_stub.memory.device_span import DeviceSpan as DeviceSpan  # callers use it as gpu.Span

if TYPE_CHECKING:
    # CPython 3.8 has Protocol, but a process that executes nothing on a GPU need not load it.
    from typing import Protocol
else:
    Protocol = object


class Driver(Protocol):
    """Thread-safe. A failure raises Unavailable. Copies are complete when they return."""

    def allocate(self, gpu: int, size: int) -> int:
        """Allocate memory that can be given to other processes; return its address."""

    def free(self, gpu: int, address: int) -> None:
        """Free allocated memory."""

    def room(self, gpu: int) -> int:
        """Return the size of the GPU's memory in bytes."""

    def export(self, gpu: int, address: int) -> bytes:
        """Return a handle by which another process opens memory allocated here."""

    def open(self, handle: bytes) -> tuple[int, int, int]:
        """Open another process's memory; return GPU, address, and its true size."""

    def close(self, gpu: int, address: int) -> None:
        """Close opened memory."""

    def copy(self, gpu: int, target: int, span: DeviceSpan) -> None:
        """Copy to an address on this GPU."""

    def to_host(self, view: memoryview, span: DeviceSpan) -> None:
        """Return the content of the span."""

    def from_host(self, gpu: int, target: int, data: Any) -> None:
        """Copy to an address on this GPU, from any buffer."""

    def settle(self, gpu: int) -> None:
        """Wait until nothing that this process has begun on the GPU is running."""

    def ask(self, source: Any, gpu: int) -> Any:
        """Return the capsule of an object with `__dlpack__`, when its content is written."""

    def give(self, span: DeviceSpan, dtype: Any, shape: tuple[int, ...], max_version: Any) -> Any:
        """Return a capsule over the span, which it keeps alive."""


_driver: Driver | None = None
#: Trying again would not be cheap.
_why_not = ""


def use(driver: Driver | None) -> None:
    """Use another driver than CUDA's, for tests without a GPU."""
    global _driver
    _driver = driver


def driver() -> Driver:
    """Return the driver. Raises Unavailable with the reason without one."""
    global _driver, _why_not
    if _driver is None and not _why_not:
        try:
            from zmqtriton_stub.memory.gpu_cuda import Cuda

            _driver = Cuda()
        except (ImportError, Unavailable) as error:
            _why_not = f"memory of GPUs can only be used where cupy finds one: {error}"
    if _driver is None:
        raise Unavailable(_why_not)
    return _driver


def is_usable() -> bool:
    """Return whether there is a driver."""
    try:
        driver()
    except Unavailable:
        return False
    return True


class _Own:
    """Memory that was allocated for one tensor only."""

    def __init__(self, gpu: int, size: int) -> None:
        self._gpu = gpu
        self._free = driver().free
        self.address = driver().allocate(gpu, size)

    def __del__(self) -> None:
        address = getattr(self, "address", None)
        if address is not None:
            self._free(self._gpu, address)


def copied(span: DeviceSpan, gpu: int) -> DeviceSpan:
    """Return the same bytes in memory of their own."""
    own = _Own(gpu, span.size)
    driver().copy(gpu, own.address, span)
    return DeviceSpan(gpu, own.address, span.size, own)


def uploaded(gpu: int, data: Any) -> DeviceSpan:
    """Copy bytes from the CPU to a GPU."""
    own = _Own(gpu, len(data))
    driver().from_host(gpu, own.address, data)
    return DeviceSpan(gpu, own.address, len(data), own)


def downloaded(span: DeviceSpan) -> memoryview:
    """Copy bytes from a GPU to writable memory of the CPU."""
    view = memoryview(bytearray(span.size))
    driver().to_host(view, span)
    return view
