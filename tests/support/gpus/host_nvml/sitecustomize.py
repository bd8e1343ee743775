"""Stands for NVIDIA's management library where there is no GPU, for processes of a server.

Python imports it at its start, since its folder is in PYTHONPATH. HOST_NVML_GPUS is the number of
GPUs, 1 without it. HOST_NVML_MEMORY is a directory with a file for each process that has memory
there, named by its pid: a JSON object with bytes by the number of the GPU. HOST_NVML_SLICES is the
number of slices (MIG) on the last GPU, in every second of its places.
"""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any

_COUNT = int(os.environ.get("HOST_NVML_GPUS", "1"))
_SLICES = int(os.environ.get("HOST_NVML_SLICES", "0"))
_TOTAL = 1 << 30
_NOT_SUPPORTED, _NOT_FOUND, _TOO_FEW = 3, 6, 7
#: Handle of the first slice.
_FIRST_SLICE = 1000


def _uuid(index: int) -> bytes:
    return b"GPU-%08d-0000-0000-0000-000000000000" % index


def _used(device: Any) -> list[tuple[int, int]]:
    """Return the living processes that have memory on a GPU, with their bytes."""
    directory = os.environ.get("HOST_NVML_MEMORY", "")
    files = Path(directory).iterdir() if directory else ()
    sizes = {
        int(file.name): json.loads(file.read_text()).get(str(device.value - 1), 0)
        for file in files
        if file.name.isdecimal() and Path("/proc", file.name).exists()
    }
    return sorted((pid, size) for pid, size in sizes.items() if size)


def _given(pointer: Any) -> Any:
    """Return what `ctypes.byref` was given."""
    return pointer._obj  # it has no other name


class _Nvml:
    """The functions that the server calls."""

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlShutdown(self) -> int:
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        _given(count).value = _COUNT
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, device: Any) -> int:
        _given(device).value = index.value + 1
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, device: Any) -> int:
        _given(device).value = list(map(_uuid, range(_COUNT))).index(uuid) + 1
        return 0

    def nvmlDeviceGetUUID(self, device: Any, uuid: Any, size: Any) -> int:
        number = device.value - _FIRST_SLICE
        uuid.value = b"MIG-%08d" % number if number >= 0 else _uuid(device.value - 1)
        return 0

    def nvmlDeviceGetName(self, device: Any, name: Any, size: Any) -> int:
        name.value = b"NVIDIA H200 MIG 1g.18gb"
        return 0

    def nvmlDeviceGetMigMode(self, device: Any, current: Any, later: Any) -> int:
        if device.value != _COUNT or not _SLICES:
            return _NOT_SUPPORTED
        _given(current).value = _given(later).value = 1
        return 0

    def nvmlDeviceGetMaxMigDeviceCount(self, device: Any, count: Any) -> int:
        _given(count).value = 2 * _SLICES
        return 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Any, index: Any, own: Any) -> int:
        if index.value % 2:
            return _NOT_FOUND
        _given(own).value = _FIRST_SLICE + index.value // 2
        return 0

    def nvmlDeviceGetCudaComputeCapability(self, device: Any, major: Any, minor: Any) -> int:
        _given(major).value, _given(minor).value = 9, 0
        return 0

    def nvmlDeviceGetMemoryInfo(self, device: Any, memory: Any) -> int:
        _given(memory).total = _TOTAL
        _given(memory).free = _TOTAL - sum(size for _, size in _used(device))
        return 0

    def nvmlDeviceGetComputeRunningProcesses_v3(self, device: Any, count: Any, rows: Any) -> int:
        used, room = _used(device), _given(count).value if rows is not None else 0
        _given(count).value = len(used)
        if len(used) > room:
            return _TOO_FEW
        for row, (pid, size) in zip(rows or (), used, strict=False):
            row.pid, row.used = pid, size
        return 0


class _Library(ctypes.CDLL):
    def __new__(cls, name: Any = None, *arguments: Any, **options: Any) -> Any:
        return _Nvml() if name == "libnvidia-ml.so.1" else super().__new__(cls)


ctypes.CDLL = _Library  # type: ignore[misc]
