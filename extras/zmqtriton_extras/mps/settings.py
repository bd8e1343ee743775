"""The parameter GPU_SHARE of a model, and the option `--mps`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from zmqtriton.sdk.models import Problem, config_parameter, parameter_text
from zmqtriton.sdk.process import options

AUTO = "auto"
#: The parameter of a model that can list slices of GPUs for its instances.
VARIABLE = "CUDA_VISIBLE_DEVICES"
_GPU_SHARE = "GPU_SHARE"
_SHARE = re.compile(r"(100|[1-9][0-9]?)%(?: +([1-9][0-9]*[MG]))?")


class GpuShare(NamedTuple):
    """The part of a GPU that each instance of a model may use."""

    percent: int
    #: Limit of memory as MPS reads it, such as `8G`; "" without a limit.
    memory: str = ""


#: Types of values that readers send to the supervisor.
TYPES = (GpuShare,)
#: The reader of `--mps`.
read_option = options.one_of((AUTO, "off"), "invalid argument for --mps")


def read(config: Any) -> GpuShare | None:
    match = _SHARE.fullmatch(parameter_text(config, _GPU_SHARE))
    return GpuShare(int(match[1]), match[2] or "") if match else None


def slices_in(text: str) -> list[str]:
    """Return the slices that a text of CUDA_VISIBLE_DEVICES lists; none if it names others."""
    return [each.strip() for each in text.split(",")] if text.startswith("MIG-") else []


def has_slices(config: str) -> bool:
    """Return whether a model's configuration, as JSON, names slices of GPUs."""
    return bool(slices_in(config_parameter(json.loads(config), VARIABLE)))


def problems(config: Any) -> Iterator[Problem]:
    if read(config) is None:
        text = f"{_GPU_SHARE} is '{parameter_text(config, _GPU_SHARE)}', it must be a percentage"
        yield Problem(f"{text}, such as '30%' or '30% 8G'", ("parameters", _GPU_SHARE))
    if slices_in(parameter_text(config, VARIABLE)):
        text = f"{_GPU_SHARE} is for whole GPUs, and {VARIABLE} names slices: remove it"
        yield Problem(text, ("parameters", _GPU_SHARE))
