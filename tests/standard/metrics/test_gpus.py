"""Metrics of GPUs, from a library like NVIDIA's, and from NVIDIA's where there is one."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tests.standard.metrics.test_own import Now
from tests.support.waiting import eventually
from zmqtriton.host.gpus import list_nvml_gpus
from zmqtriton_standard.metrics.gpus import Gpus

_UUIDS = ["GPU-aaaa-1", "GPU-bbbb-2"]


class NVMLError(Exception):
    """As the library has it."""


class NVMLError_NotSupported(NVMLError):
    """As the library has it."""


class Nvml:
    """The functions of pynvml that are used, over two imaginary GPUs."""

    NVMLError = NVMLError
    NVMLError_NotSupported = NVMLError_NotSupported

    def __init__(self) -> None:
        self.begun = 0
        self.energy_mj = 7_000_000
        self.failing: Exception | None = None
        self.has_power = True

    def nvmlInit(self) -> None:
        self.begun += 1
        if self.failing is not None:
            raise self.failing

    def nvmlDeviceGetCount(self) -> int:
        return len(_UUIDS)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, device: int) -> str:
        return _UUIDS[device]

    def nvmlDeviceGetUtilizationRates(self, device: int) -> Any:
        if self.failing is not None:
            raise self.failing
        return SimpleNamespace(gpu=25 + device, memory=99)

    def nvmlDeviceGetMemoryInfo(self, device: int) -> Any:
        return SimpleNamespace(total=150_000_000_000, used=1_000 + device, free=0)

    def nvmlDeviceGetPowerUsage(self, device: int) -> int:
        if not self.has_power:
            raise NVMLError_NotSupported("Not Supported")
        return 75_500

    def nvmlDeviceGetPowerManagementLimit(self, device: int) -> int:
        return 700_000

    def nvmlDeviceGetTotalEnergyConsumption(self, device: int) -> int:
        return self.energy_mj


def values(gpus: Gpus) -> dict[str, str]:
    rows = (line.rpartition(" ") for line in gpus.render().splitlines())
    return {name: value for name, _, value in rows if not name.startswith("#")}


@pytest.mark.row("nv_gpu_utilization", "nv_gpu_memory_total_bytes", "nv_gpu_memory_used_bytes")
def test_each_gpu_tells_of_itself_under_its_uuid() -> None:
    gpus = Gpus(Nvml, visible=None)

    assert gpus.look()

    expected = {
        'nv_gpu_utilization{gpu_uuid="GPU-aaaa-1"}': "0.25",
        'nv_gpu_utilization{gpu_uuid="GPU-bbbb-2"}': "0.26",
        'nv_gpu_memory_total_bytes{gpu_uuid="GPU-aaaa-1"}': "150000000000",
        'nv_gpu_memory_used_bytes{gpu_uuid="GPU-bbbb-2"}': "1001",
    }
    assert expected.items() <= values(gpus).items()
    assert "# TYPE nv_gpu_utilization gauge\n" in gpus.render()


@pytest.mark.row("nv_gpu_power_usage", "nv_gpu_power_limit", "nv_energy_consumption")
def test_power_is_in_watts_and_energy_in_joules_since_the_start() -> None:
    nvml = Nvml()
    gpus = Gpus(lambda: nvml, visible=None)
    gpus.look()
    nvml.energy_mj += 12_500

    gpus.look()

    expected = {
        'nv_gpu_power_usage{gpu_uuid="GPU-aaaa-1"}': "75.5",
        'nv_gpu_power_limit{gpu_uuid="GPU-aaaa-1"}': "700",
        'nv_energy_consumption{gpu_uuid="GPU-aaaa-1"}': "12.5",
    }
    assert expected.items() <= values(gpus).items()
    assert "# TYPE nv_energy_consumption counter\n" in gpus.render()


def test_what_a_gpu_does_not_have_is_left_out() -> None:
    nvml = Nvml()
    nvml.has_power = False
    gpus = Gpus(lambda: nvml, visible=None)

    gpus.look()

    assert "nv_gpu_power_usage" not in gpus.render()
    assert "nv_gpu_power_limit" in gpus.render()


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [(None, _UUIDS), ("1", _UUIDS[1:]), ("GPU-aaaa", _UUIDS[:1]), ("", []), ("1, 0", _UUIDS)],
)
def test_only_gpus_that_models_may_see_are_told_of(visible: str | None, uuids: list[str]) -> None:
    gpus = Gpus(Nvml, visible=visible)

    gpus.look()

    names = [name for name in values(gpus) if name.startswith("nv_gpu_utilization")]
    assert names == [f'nv_gpu_utilization{{gpu_uuid="{uuid}"}}' for uuid in uuids]


def test_without_the_library_it_is_not_asked_again() -> None:
    def load() -> Any:
        raise ImportError("no pynvml")

    gpus = Gpus(load, visible=None)

    assert not gpus.look()
    assert gpus.render() == ""


@pytest.mark.parametrize("error", [NVMLError("driver not loaded"), OSError("gone")])
def test_a_driver_that_fails_is_asked_again_later(error: Exception) -> None:
    now, nvml = Now(), Nvml()
    gpus = Gpus(lambda: nvml, now, visible=None)
    gpus.look()
    nvml.failing = error

    assert gpus.look()
    assert gpus.render() == ""
    assert gpus.look()
    assert nvml.begun == 1

    now.s += 60
    nvml.failing = None
    assert gpus.look()
    assert nvml.begun == 2
    assert "nv_gpu_utilization" in gpus.render()


def test_a_driver_that_hangs_holds_nobody_up_and_what_was_read_grows_old() -> None:
    now, nvml = Now(), Nvml()
    hanging, released = threading.Event(), threading.Event()
    gpus = Gpus(lambda: nvml, now, visible=None)
    gpus.look()

    def hang(device: int) -> Any:
        hanging.set()
        released.wait(60)
        raise NVMLError("too late")

    nvml.nvmlDeviceGetUtilizationRates = hang  # type: ignore[method-assign]
    gpus.watch(0.01)
    assert hanging.wait(30)

    assert "nv_gpu_utilization" in gpus.render()
    now.s += 60
    assert gpus.render() == ""
    gpus.close()
    released.set()


def test_a_thread_looks_again_and_again() -> None:
    nvml = Nvml()
    gpus = Gpus(lambda: nvml, visible=None)

    gpus.watch(0.01)

    eventually(lambda: "nv_gpu_utilization" in gpus.render(), 30)
    nvml.energy_mj += 5_000
    eventually(lambda: 'nv_energy_consumption{gpu_uuid="GPU-aaaa-1"} 5\n' in gpus.render(), 30)
    gpus.close()


@pytest.mark.gpu
def test_a_real_gpu_has_memory_and_is_used_at_most_wholly() -> None:
    pytest.importorskip("pynvml")
    try:
        list_nvml_gpus()
    except OSError as error:
        pytest.skip(str(error))
    gpus = Gpus()

    assert gpus.look()

    readings = values(gpus)
    total = [float(v) for name, v in readings.items() if name.startswith("nv_gpu_memory_total")]
    used = [float(v) for name, v in readings.items() if name.startswith("nv_gpu_memory_used")]
    busy = [float(v) for name, v in readings.items() if name.startswith("nv_gpu_utilization")]
    assert total
    assert all(0 < part <= whole for part, whole in zip(used, total, strict=True))
    assert all(0 <= share <= 1 for share in busy)
