"""GPU memory as the stub knows it, and the driver that works with it.

All modules with tensors import it, so it must cost nothing: the driver is loaded with the first
tensor on a GPU. Without cupy or a GPU there is no driver, and driver() raises Unavailable.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from zmqtriton_floor.errors import Unavailable
from zmqtriton_stub.memory.device_span import DeviceSpan as DeviceSpan  # callers use gpu.DeviceSpan

if TYPE_CHECKING:
    from zmqtriton_stub.memory.gpu_cuda import Cuda

_driver: Cuda | None = None
#: Trying again would not be cheap.
_why_not = ""


def use(driver: Any) -> None:
    """Use another driver than CUDA's, for tests without a GPU."""
    global _driver
    _driver = driver


def driver() -> Cuda:
    """Return the driver. Raises Unavailable with the reason if there is no driver."""
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


def _new(gpu: int, size: int) -> DeviceSpan:
    """Return new memory on a GPU for a single tensor, freed with the last reference to it."""
    span = DeviceSpan(gpu, driver().allocate(gpu, size), size)
    weakref.finalize(span, driver().free, gpu, span.address).atexit = False
    return span


def copied(span: DeviceSpan, gpu: int) -> DeviceSpan:
    """Return a copy of a span in new memory on a GPU."""
    own = _new(gpu, span.size)
    driver().copy(gpu, own.address, span)
    return own


def uploaded(gpu: int, data: Any) -> DeviceSpan:
    """Copy bytes from the CPU to a GPU."""
    own = _new(gpu, len(data))
    driver().from_host(gpu, own.address, data)
    return own


def downloaded(span: DeviceSpan) -> memoryview:
    """Copy bytes from a GPU to writable memory of the CPU."""
    view = memoryview(bytearray(span.size))
    driver().to_host(view, span)
    return view
