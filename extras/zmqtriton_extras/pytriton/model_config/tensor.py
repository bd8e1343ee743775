"""An input or output of a model, as the user declares it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Tensor:
    """An input or output; without a name it gets one by its position, from `INPUT_1` on."""

    #: Without the batch; -1 for any length.
    shape: tuple[int, ...]
    #: A type of numpy's; `bytes` or `object` for byte strings.
    dtype: Any
    name: str | None = None
    #: Requests may leave this input out.
    optional: bool | None = False

    def __post_init__(self) -> None:
        if isinstance(self.dtype, np.dtype):
            object.__setattr__(self, "dtype", self.dtype.type)
