"""Stands for NVIDIA's management library where there is no GPU: one GPU, for processes of a server.

Python imports it at its start, since its folder is in PYTHONPATH.
"""

from __future__ import annotations

import ctypes
from typing import Any

_UUID = b"GPU-00000000-0000-0000-0000-000000000000"


class _Nvml:
    """The functions that the server calls, over one GPU."""

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlShutdown(self) -> int:
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 1
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, device: Any) -> int:
        device._obj.value = index.value + 1
        return 0

    def nvmlDeviceGetUUID(self, device: Any, uuid: Any, size: Any) -> int:
        uuid.value = _UUID
        return 0

    def nvmlDeviceGetCudaComputeCapability(self, device: Any, major: Any, minor: Any) -> int:
        major._obj.value, minor._obj.value = 9, 0
        return 0


class _Library(ctypes.CDLL):
    def __new__(cls, name: Any = None, *arguments: Any, **options: Any) -> Any:
        return _Nvml() if name == "libnvidia-ml.so.1" else super().__new__(cls)


ctypes.CDLL = _Library  # type: ignore[misc]
