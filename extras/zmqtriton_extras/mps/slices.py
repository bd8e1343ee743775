"""Slices of GPUs (MIG): lists the slices of this machine, and compares models with them.

Asks NVIDIA's library. Has not run on a GPU yet: in tests, a stand-in answers as the manual says.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from zmqtriton.sdk.models import (
    Chapter,
    Finding,
    Problem,
    Severity,
    Target,
    instance_specs,
    parameter_text,
    with_group_defaults,
)
from zmqtriton.sdk.process import Gpu
from zmqtriton_extras.mps.settings import VARIABLE, slices_in

_BYTES = 96


class Slice(NamedTuple):
    uuid: str
    #: NVIDIA's name of it, such as "NVIDIA H200 MIG 1g.18gb".
    name: str
    #: The number of its GPU, without CUDA_VISIBLE_DEVICES.
    gpu: int


def list_slices(find: Callable[[], Sequence[Gpu]] | None = None) -> list[Slice]:
    """Return the slices that this process may use. Raises OSError without the library."""
    return [
        each for number, gpu in enumerate(Gpu.chosen({}, find)) for each in _slices_of(gpu, number)
    ]


def _slices_of(gpu: Gpu, number: int) -> Iterator[Slice]:
    with gpu.opened() as (nvml, device):
        is_on, later, limit = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
        get_mode = getattr(nvml, "nvmlDeviceGetMigMode", None)  # since driver 450
        if get_mode is None or get_mode(device, ctypes.byref(is_on), ctypes.byref(later)):
            return
        if not is_on.value or nvml.nvmlDeviceGetMaxMigDeviceCount(device, ctypes.byref(limit)):
            return
        for place in range(limit.value):
            own = ctypes.c_void_p()
            get = nvml.nvmlDeviceGetMigDeviceHandleByIndex
            if not get(device, ctypes.c_uint(place), ctypes.byref(own)):  # else it is free
                texts = (_text(nvml.nvmlDeviceGetUUID, own), _text(nvml.nvmlDeviceGetName, own))
                yield Slice(*texts, number)


def _text(get: Any, device: ctypes.c_void_p) -> str:
    buffer = ctypes.create_string_buffer(_BYTES)
    failed = get(device, buffer, ctypes.c_uint(_BYTES))
    return "" if failed else buffer.value.decode("ascii", "replace")


def notes_of_configs(configs: Mapping[str, Any]) -> Iterator[tuple[str, Problem]]:
    """Compare the slices that models name with the machine's, and with the instances."""
    texts = {name: parameter_text(config, VARIABLE) for name, config in configs.items()}
    named = {name: slices for name, text in texts.items() if (slices := slices_in(text))}
    if not named:
        return
    try:
        here = {each.uuid: each for each in list_slices()}
    except OSError:
        here = {}
    for name, slices in named.items():
        for text in (_missing(slices, here), _unfit(configs[name], len(slices))):
            if text:
                yield name, Problem(text, ("parameters", VARIABLE), severity=Severity.WARNING)


def _missing(slices: Sequence[str], here: Mapping[str, Slice]) -> str:
    missing = [each for each in slices if each not in here]
    has = ", ".join(here) or "none"
    return f"this machine has no slice {', '.join(missing)}; it has {has}" if missing else ""


def _unfit(config: Any, count: int) -> str:
    """Return why instances would meet on a slice, or use none."""
    specs = [each for each in instance_specs(with_group_defaults(config)) if each.kind == "GPU"]
    if not specs:
        return "only instances with kind: KIND_GPU and gpus: [ 0 ] get a slice, and it has none"
    if len({each.device_id for each in specs}) > 1:
        return "instances on different GPUs would get the same slices: set gpus: [ 0 ] and count"
    text = f"its {len(specs)} instances share {count} slices: list one for each"
    return text if len(specs) > count else ""


def chapters(target: Target) -> Iterator[Chapter]:
    yield Chapter("slices of GPUs", _judge())


def _judge() -> Iterator[Finding]:
    try:
        slices = list_slices()
    except OSError:
        return
    for each in slices:
        yield Finding.note(f"GPU {each.gpu} has the slice {each.uuid} ({each.name})", "")
