"""The GPUs that an instance's process sees if its model has CUDA_VISIBLE_DEVICES `instance`."""

from __future__ import annotations

import json
import os

import pytest

from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable
from zmqtriton_stub.memory import device_span
from zmqtriton_stub.own_process import see_own_gpu

_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables and the number are as they were, afterwards."""
    for name in _VARIABLES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(device_span, "only_gpu", None)


def load(kind: str, device: int, value: str = "instance") -> wire.LoadModel:
    parameters = {"CUDA_VISIBLE_DEVICES": {"string_value": value}} if value else {}
    config = json.dumps({"name": "m", "parameters": parameters})
    return wire.LoadModel("m_0", "m", 1, kind, device, "/m", "/m/1/model.py", config, 0)


def variables() -> tuple[str | None, ...]:
    return tuple(map(os.environ.get, _VARIABLES))


@pytest.mark.row("B22")
@pytest.mark.parametrize(
    ("visible", "device", "seen"),
    [
        (None, 0, "0"),
        (None, 3, "3"),
        ("2,0", 1, "0"),
        ("GPU-ab, MIG-cd", 1, "MIG-cd"),
    ],
)
def test_an_instance_sees_its_gpu_alone_as_the_first(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, device: int, seen: str
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    changed = see_own_gpu(load("GPU", device))

    assert load("GPU", 0) == changed
    assert (seen, "PCI_BUS_ID") == variables()
    assert 0 == device_span.number_here(device)
    with pytest.raises(
        Unavailable, match=f"memory on GPU 7 is not seen: the instance has GPU {device}"
    ):
        device_span.number_here(7)


def test_the_order_that_the_operator_has_chosen_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")

    see_own_gpu(load("GPU", 1))

    assert ("1", "FASTEST_FIRST") == variables()


def test_an_instance_on_the_cpu_sees_none() -> None:
    alone = load("CPU", 0)

    assert alone == see_own_gpu(alone)
    assert "" == os.environ["CUDA_VISIBLE_DEVICES"]


@pytest.mark.parametrize("order", [load("GPU", 1, ""), load("GPU", 1, "0"), load("MODEL", 0)])
def test_other_models_see_all(order: wire.LoadModel) -> None:
    assert order == see_own_gpu(order)
    assert (None, None) == variables()
    assert 5 == device_span.number_here(5)
