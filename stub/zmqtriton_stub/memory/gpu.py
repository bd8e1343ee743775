"""GPU memory as the stub knows it, and the driver that works with it.

All modules with tensors import it, so it must cost nothing: the driver is loaded with the first
tensor on a GPU. Without cupy or a GPU there is no driver, and driver() raises Unavailable.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any

from zmqtriton_floor.errors import Unavailable
from zmqtriton_stub.memory.device_span import DeviceSpan as DeviceSpan  # callers use gpu.DeviceSpan

if TYPE_CHECKING:
    from zmqtriton_stub.memory.gpu_cuda import Cuda

_driver: Cuda | None = None
#: Trying again would not be cheap.
_why_not = ""

#: Errors of CUDA's driver that end all work of the process on that GPU, by number.
_FATAL = {
    214: "CUDA_ERROR_ECC_UNCORRECTABLE",
    220: "CUDA_ERROR_NVLINK_UNCORRECTABLE",
    700: "CUDA_ERROR_ILLEGAL_ADDRESS",
    702: "CUDA_ERROR_LAUNCH_TIMEOUT",
    710: "CUDA_ERROR_ASSERT",
    714: "CUDA_ERROR_HARDWARE_STACK_ERROR",
    715: "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    716: "CUDA_ERROR_MISALIGNED_ADDRESS",
    717: "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    718: "CUDA_ERROR_INVALID_PC",
    719: "CUDA_ERROR_LAUNCH_FAILED",
    805: "CUDA_ERROR_MPS_CONNECTION_FAILED",
    809: "CUDA_ERROR_MPS_CLIENT_TERMINATED",
}


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


def fatal_error() -> str:
    """Return the error that CUDA's driver gives for all work of this process on a GPU, or "".

    Asks the driver only if a library of the model has loaded it, and initialises nothing.
    """
    import ctypes  # most processes never come here

    try:
        cuda = ctypes.CDLL("libcuda.so.1", os.RTLD_NOLOAD)
        release = cuda.cuDevicePrimaryCtxRelease_v2  # the newest function of these, of CUDA 11
    except (OSError, AttributeError):
        return ""
    device, flags, is_active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    context, number, code = ctypes.c_void_p(), 0, 0
    while code not in _FATAL and not cuda.cuDeviceGet(ctypes.byref(device), number):
        cuda.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(is_active))
        if is_active.value:
            code = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
            if not code:
                cuda.cuCtxPushCurrent_v2(context)
                code = cuda.cuStreamQuery(None)
                cuda.cuCtxPopCurrent_v2(ctypes.byref(context))
                release(device)
        number += 1
    return _FATAL.get(code, "")
