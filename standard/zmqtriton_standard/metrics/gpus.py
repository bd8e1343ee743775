"""The use of GPUs, for the metrics page, from NVIDIA's management library.

It comes with the package nvidia-ml-py (`pip install 'zmqtriton[gpu]'`); without it, without a
driver or a GPU there are no such metrics. A driver can hang, so a daemon thread reads it: the
server never waits for this thread, and does not show its old values.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from zmqtriton_standard.metrics.model_metrics import Family, text_of

_log = logging.getLogger(__name__)

#: Module of the package nvidia-ml-py.
_MODULE = "pynvml"
#: Seconds between two attempts to read a driver that fails.
_RETRY_S = 30.0
#: A reading is shown for so many intervals, but for so long at least.
_FRESH_INTERVALS = 3
_FRESH_S = 10.0


#: Families with functions of the library and a device for their values. A function raises the
#: library's error if the device does not have the figure.
_FAMILIES = (
    Family(
        "nv_gpu_utilization",
        "gauge",
        "GPU utilization rate [0.0 - 1.0)",
        lambda nvml, device: nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100,
    ),
    Family(
        "nv_gpu_memory_total_bytes",
        "gauge",
        "GPU total memory, in bytes",
        lambda nvml, device: nvml.nvmlDeviceGetMemoryInfo(device).total,
    ),
    Family(
        "nv_gpu_memory_used_bytes",
        "gauge",
        "GPU used memory, in bytes",
        lambda nvml, device: nvml.nvmlDeviceGetMemoryInfo(device).used,
    ),
    Family(
        "nv_gpu_power_usage",
        "gauge",
        "GPU power usage in watts",
        lambda nvml, device: nvml.nvmlDeviceGetPowerUsage(device) / 1000,
    ),
    Family(
        "nv_gpu_power_limit",
        "gauge",
        "GPU power management limit in watts",
        lambda nvml, device: nvml.nvmlDeviceGetPowerManagementLimit(device) / 1000,
    ),
    Family(
        "nv_energy_consumption",
        "counter",
        "GPU energy consumption in joules since the Triton Server started",
        lambda nvml, device: nvml.nvmlDeviceGetTotalEnergyConsumption(device) / 1000,
    ),
)
_ENERGY = "nv_energy_consumption"

#: Values by family, of the GPU with this UUID.
Readings = dict[str, dict[str, float]]


class Gpus:
    def __init__(
        self,
        load: Callable[[], Any] = lambda: importlib.import_module(_MODULE),
        now_s: Callable[[], float] = time.monotonic,
        visible: str | None = os.environ.get("CUDA_VISIBLE_DEVICES"),
    ) -> None:
        """Set up; `visible` is the GPUs that CUDA shows to models, None means all."""
        self._load = load
        self._now_s = now_s
        self._visible = visible
        #: None: not initialized, or failed.
        self._nvml: Any = None
        self._devices: dict[str, Any] = {}
        #: A GPU's energy when it was first seen.
        self._consumed: dict[str, float] = {}
        self._readings: Readings = {}
        self._found_at_s = 0.0
        self._retry_at_s = 0.0
        self._fresh_s = _FRESH_S
        self._ended = threading.Event()

    def watch(self, interval_s: float) -> None:
        """Start watching, in a thread that ends with the process."""
        self._fresh_s = max(_FRESH_S, _FRESH_INTERVALS * interval_s)
        threading.Thread(target=self._watch, args=(interval_s,), daemon=True).start()

    def _watch(self, interval_s: float) -> None:
        while self.look() and not self._ended.wait(interval_s):
            pass

    def close(self) -> None:
        """Close; the thread ends, unless the driver holds it."""
        self._ended.set()

    def look(self) -> bool:
        """Read all GPUs; False if reading can never work."""
        if self._nvml is None and self._now_s() < self._retry_at_s:
            return True
        try:
            if self._nvml is None:
                self._begin()
            self._readings = {uuid: self._read(uuid, of) for uuid, of in self._devices.items()}
            self._found_at_s = self._now_s()
        except ImportError as error:
            _log.debug("no metrics of GPUs: %s", error)
            return False
        # the library's errors are made at run time, and a broken driver may raise others
        except Exception as error:  # noqa: BLE001
            _log.debug("no metrics of GPUs: %s", error)
            self._nvml, self._readings = None, {}
            self._retry_at_s = self._now_s() + _RETRY_S
        return True

    def _begin(self) -> None:
        nvml = self._load()
        nvml.nvmlInit()
        self._devices = {}
        for index in range(nvml.nvmlDeviceGetCount()):
            device = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = nvml.nvmlDeviceGetUUID(device)
            uuid = uuid.decode() if isinstance(uuid, bytes) else uuid
            if self._is_visible(index, uuid):
                self._devices[uuid] = device
        self._nvml = nvml

    def _is_visible(self, index: int, uuid: str) -> bool:
        if self._visible is None:
            return True
        entries = [entry.strip() for entry in self._visible.split(",")]
        # a part of a GPU does not say of which
        return any(
            entry == str(index) or entry.startswith("MIG-") or (entry and uuid.startswith(entry))
            for entry in entries
        )

    def _read(self, uuid: str, device: Any) -> dict[str, float]:
        values: dict[str, float] = {}
        for family in _FAMILIES:
            try:
                values[family.name] = float(family.value(self._nvml, device))
            except self._nvml.NVMLError_NotSupported:
                continue
        if _ENERGY in values:
            values[_ENERGY] -= self._consumed.setdefault(uuid, values[_ENERGY])
        return values

    def render(self) -> str:
        """Return Prometheus text; "" if nothing is recent enough."""
        readings = self._readings  # a thread puts others in their place
        if self._now_s() - self._found_at_s > self._fresh_s:
            return ""
        return text_of(
            line
            for each in _FAMILIES
            for line in each.lines(
                ({"gpu_uuid": uuid}, values[each.name])
                for uuid, values in readings.items()
                if each.name in values
            )
        )
