"""Memory of GPUs as the stub knows it: a piece of it, and what has to be able to work with it.

Imported by all who hold tensors, so it costs nothing: the driver is loaded when the first tensor on
a GPU is met. Without cupy or a GPU there is none, and whoever needs it is told so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zmqtriton_floor.errors import Unavailable
from zmqtriton_stub.memory.device_span import Span as Span  # callers use it as gpu.Span

if TYPE_CHECKING:
    # CPython 3.8 has Protocol, but who executes nothing on a GPU need not load it.
    from typing import Protocol
else:
    Protocol = object


class Driver(Protocol):
    """Safe for threads. What fails raises Unavailable. Copies are over when they return."""

    def allocate(self, gpu: int, size: int) -> int:
        """The address of memory of its own, which other processes can be given."""

    def free(self, gpu: int, address: int) -> None:
        """Of what was allocated."""

    def room(self, gpu: int) -> int:
        """How many bytes the GPU has in all."""

    def export(self, gpu: int, address: int) -> bytes:
        """By which another process opens what was allocated here."""

    def open(self, handle: bytes) -> tuple[int, int, int]:
        """Another process's memory: GPU, address, and its true size."""

    def close(self, gpu: int, address: int) -> None:
        """Of what was opened."""

    def copy(self, gpu: int, target: int, span: Span) -> None:
        """To an address on this GPU."""

    def to_host(self, view: memoryview, span: Span) -> None:
        """All of the span."""

    def from_host(self, gpu: int, target: int, data: Any) -> None:
        """To an address on this GPU, from any buffer."""

    def settle(self, gpu: int) -> None:
        """Waits until nothing that this process has begun there is under way."""

    def ask(self, source: Any, gpu: int) -> Any:
        """The capsule of an object with `__dlpack__`, when all is written that it is to hold."""

    def give(self, span: Span, dtype: Any, shape: tuple[int, ...], max_version: Any) -> Any:
        """A capsule over the span, which it keeps."""


_driver: Driver | None = None
#: What it takes to try that again is not little.
_why_not = ""


def use(driver: Driver | None) -> None:
    """Another one than CUDA's: where a test has no GPU."""
    global _driver
    _driver = driver


def driver() -> Driver:
    """Raises Unavailable, with the reason, where there is none."""
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
    """Whether there is a driver."""
    try:
        driver()
    except Unavailable:
        return False
    return True


class _Own:
    """Memory that was allocated for one tensor alone."""

    def __init__(self, gpu: int, size: int) -> None:
        self._gpu = gpu
        self._free = driver().free
        self.address = driver().allocate(gpu, size)

    def __del__(self) -> None:
        address = getattr(self, "address", None)
        if address is not None:
            self._free(self._gpu, address)


def copied(span: Span, gpu: int) -> Span:
    """The same bytes in memory of their own."""
    own = _Own(gpu, span.size)
    driver().copy(gpu, own.address, span)
    return Span(gpu, own.address, span.size, own)


def uploaded(gpu: int, data: Any) -> Span:
    """Bytes of the CPU, on a GPU."""
    own = _Own(gpu, len(data))
    driver().from_host(gpu, own.address, data)
    return Span(gpu, own.address, len(data), own)


def downloaded(span: Span) -> memoryview:
    """Bytes of a GPU, on the CPU, to be written to at will."""
    view = memoryview(bytearray(span.size))
    driver().to_host(view, span)
    return view
