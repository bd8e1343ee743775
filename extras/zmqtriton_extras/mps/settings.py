"""The parameter GPU_SHARE of a model, and the option `--mps`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from zmqtriton.sdk.models import Problem, parameter_text
from zmqtriton.sdk.process import options

AUTO = "auto"
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


def problems(config: Any) -> Iterator[Problem]:
    if read(config) is None:
        text = f"{_GPU_SHARE} is '{parameter_text(config, _GPU_SHARE)}', it must be a percentage"
        yield Problem(f"{text}, such as '30%' or '30% 8G'", ("parameters", _GPU_SHARE))
