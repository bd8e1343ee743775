"""The GPUs that models may use, numbered as CUDA would, and how much of their memory is in use.

The GPUs are listed once, at start; memory is measured where the operator limits it. NVIDIA's
management library is called by ctypes: it comes with the driver, needs no package and takes no GPU
memory. Without it, or without a visible GPU, the list is empty.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

_log = logging.getLogger(__name__)

_LIBRARY = "libnvidia-ml.so.1"
_UUID_BYTES = 96


class Gpu(NamedTuple):
    """The properties that CUDA's numbering and the choice of a GPU depend on."""

    uuid: str
    compute_capability: float

    @staticmethod
    def chosen(
        environment: Mapping[str, str] = os.environ,
        find: Callable[[], Sequence[Gpu]] | None = None,
    ) -> list[Gpu]:
        """Return the GPUs that CUDA_VISIBLE_DEVICES names, in its order, as CUDA does.

        The list ends at the first invalid entry. With GPUs of different kinds a number means the
        same to both only if CUDA_DEVICE_ORDER is PCI_BUS_ID. Raises what `list_nvml_gpus` does.
        """
        gpus, visible = (find or list_nvml_gpus)(), environment.get("CUDA_VISIBLE_DEVICES")
        if visible is None:
            return list(gpus)
        chosen: list[Gpu] = []
        for entry in visible.split(","):
            gpu = _match_device(gpus, entry.strip())
            if gpu is None or gpu in chosen:
                break
            chosen.append(gpu)
        return chosen

    @classmethod
    def visible(
        cls,
        min_capability: float = 0.0,
        environment: Mapping[str, str] = os.environ,
        find: Callable[[], Sequence[Gpu]] | None = None,
    ) -> tuple[int, ...]:
        """Return the numbers that models get in `model_instance_device_id`.

        GPUs that are too old are left out.
        """
        try:
            chosen = cls.chosen(environment, find)
        except OSError as error:
            _log.debug("no GPUs: %s", error)
            return ()
        return tuple(i for i, gpu in enumerate(chosen) if gpu.compute_capability >= min_capability)

    @contextmanager
    def opened(self) -> Iterator[tuple[Any, ctypes.c_void_p]]:
        """Open the library, with its handle of the GPU. Raises what `nvml_library` does."""
        with nvml_library() as nvml:
            device = ctypes.c_void_p()
            call_nvml(nvml.nvmlDeviceGetHandleByUUID, self.uuid.encode(), ctypes.byref(device))
            yield nvml, device

    def used_memory(self) -> tuple[int, int]:
        """Return the bytes of its memory that are in use, and all."""
        with self.opened() as (nvml, device):
            memory = _NvmlMemory()
            call_nvml(nvml.nvmlDeviceGetMemoryInfo, device, ctypes.byref(memory))
            return memory.total - memory.free, memory.total


class NvmlError(OSError):
    """Raised when a call of the library fails."""


def used_memory_share(
    number: int,
    environment: Mapping[str, str] = os.environ,
    find: Callable[[], Sequence[Gpu]] | None = None,
    ask: Callable[[Gpu], tuple[int, int]] = Gpu.used_memory,
) -> float | None:
    """Return the share of a GPU's memory that is in use; None if it is unknown."""
    try:
        chosen = Gpu.chosen(environment, find)
        if not 0 <= number < len(chosen):
            return None
        used, total = ask(chosen[number])
    except OSError as error:
        _log.warning("what GPU %d has in use is not known: %s", number, error)
        return None
    return used / total if total else None


def _match_device(gpus: Sequence[Gpu], entry: str) -> Gpu | None:
    if entry.isdecimal():
        return gpus[int(entry)] if int(entry) < len(gpus) else None
    if entry.startswith("MIG-") and gpus:  # a part of a GPU; these are not listed here
        return Gpu(entry, gpus[0].compute_capability)
    # The beginning of a UUID is enough if only one GPU matches.
    fitting = [gpu for gpu in gpus if gpu.uuid.startswith(entry)] if entry[:4] == "GPU-" else []
    return fitting[0] if len(fitting) == 1 else None


@contextmanager
def nvml_library() -> Iterator[Any]:
    """Open NVIDIA's management library. Raises OSError without it, or NvmlError if a call fails."""
    nvml = ctypes.CDLL(_LIBRARY)
    call_nvml(nvml.nvmlInit_v2)
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def list_nvml_gpus() -> list[Gpu]:
    """List all GPUs that this process may open. Raises what `nvml_library` does."""
    with nvml_library() as nvml:
        count = ctypes.c_uint()
        call_nvml(nvml.nvmlDeviceGetCount_v2, ctypes.byref(count))
        return [_gpu(nvml, index) for index in range(count.value)]


def _gpu(nvml: Any, index: int) -> Gpu:
    device = ctypes.c_void_p()
    call_nvml(nvml.nvmlDeviceGetHandleByIndex_v2, ctypes.c_uint(index), ctypes.byref(device))
    uuid = ctypes.create_string_buffer(_UUID_BYTES)
    call_nvml(nvml.nvmlDeviceGetUUID, device, uuid, ctypes.c_uint(_UUID_BYTES))
    major, minor = ctypes.c_int(), ctypes.c_int()
    call_nvml(
        nvml.nvmlDeviceGetCudaComputeCapability, device, ctypes.byref(major), ctypes.byref(minor)
    )
    return Gpu(uuid.value.decode("ascii", "replace"), major.value + minor.value / 10)


class _NvmlMemory(ctypes.Structure):
    """The library's struct: bytes in all, free and in use."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


def call_nvml(function: Any, *arguments: Any) -> None:
    """Call a function of the library. Raises NvmlError if it fails."""
    code = function(*arguments)
    if code:
        raise NvmlError(f"{function.__name__} returned {code}")
