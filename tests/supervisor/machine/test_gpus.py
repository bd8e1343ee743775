"""Which GPUs there are, and how CUDA_VISIBLE_DEVICES numbers them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from zmqtriton.supervisor.machine import gpus
from zmqtriton.supervisor.machine.gpus import (
    Gpu,
    NvmlError,
    list_nvml_gpus,
    used_memory_share,
    visible_gpus,
)

THREE = [Gpu("GPU-aa11", 7.0), Gpu("GPU-ab22", 9.0), Gpu("GPU-cc33", 5.2)]


@pytest.mark.parametrize(
    ("visible", "numbers"),
    [
        (None, (0, 1, 2)),
        ("", ()),
        ("2,0", (0, 1)),
        ("1", (0,)),
        ("GPU-ab,GPU-cc33", (0, 1)),
        # The list ends at what is no GPU.
        ("1,-1,0", (0,)),
        ("0,7,1", (0,)),
        ("GPU-a", ()),
        ("none", ()),
        ("1,1", (0,)),
        ("MIG-5c89,MIG-6d90", (0, 1)),
    ],
)
@pytest.mark.row("B22", "B23")
def test_gpus_are_numbered_as_cuda_numbers_them(
    visible: str | None, numbers: tuple[int, ...]
) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}

    assert numbers == visible_gpus(environment=environment, find=lambda: THREE)


@pytest.mark.row("--min-supported-compute-capability")
def test_gpus_that_are_too_old_are_left_out_and_the_others_keep_their_numbers() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "2,1,0"}

    assert (1, 2) == visible_gpus(6.0, environment, lambda: THREE)


def test_what_is_in_use_is_asked_of_the_gpu_that_cuda_calls_so() -> None:
    uuids: list[str] = []

    def ask(uuid: str) -> tuple[int, int]:
        uuids.append(uuid)
        return 30, 120

    shares = [
        used_memory_share(n, {"CUDA_VISIBLE_DEVICES": "2,0"}, lambda: THREE, ask) for n in (0, 1, 2)
    ]

    assert [0.25, 0.25, None] == shares
    assert ["GPU-cc33", "GPU-aa11"] == uuids


def test_what_is_in_use_is_unknown_where_the_library_fails() -> None:
    def fail(uuid: str) -> tuple[int, int]:
        raise NvmlError("nvmlDeviceGetMemoryInfo returned 3")

    assert None is used_memory_share(0, {}, lambda: THREE, fail)


@pytest.mark.parametrize("error", [OSError("no library"), NvmlError("nvmlInit_v2 returned 9")])
def test_without_a_driver_there_are_none(error: Exception) -> None:
    def fail() -> Sequence[Gpu]:
        raise error

    assert () == visible_gpus(environment={}, find=fail)


def test_a_machine_without_the_library_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_LIBRARY", "libnothing-of-the-kind.so.1")

    with pytest.raises(OSError, match="libnothing"):
        list_nvml_gpus()
    assert () == visible_gpus(environment={})


@pytest.mark.gpu
def test_a_gpu_is_found_by_its_uuid() -> None:
    try:
        gpus = list_nvml_gpus()
    except (OSError, NvmlError) as error:
        pytest.skip(f"no driver: {error}")
    first = gpus[0]

    assert first.uuid.startswith("GPU-")
    assert first.compute_capability >= 5.0
    assert (0,) == visible_gpus(environment={"CUDA_VISIBLE_DEVICES": first.uuid})
    share = used_memory_share(0, {"CUDA_VISIBLE_DEVICES": first.uuid})
    assert share is not None
    assert 0 < share < 1
