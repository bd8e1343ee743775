"""Options that are numbers of bytes."""

from __future__ import annotations

import pytest

from zmqtriton.options import OptionError, parse


@pytest.mark.parametrize(
    "option", ["client-memory-byte-size", "max-model-segment-bytes", "max-model-memory-bytes"]
)
def test_sizes_may_be_above_2_gib_and_not_below_0(option: str) -> None:
    repository = "--model-repository=/models"

    assert 1 << 40 == getattr(
        parse([repository, f"--{option}={1 << 40}"]), option.replace("-", "_")
    )
    with pytest.raises(OptionError, match=r"Must not be negative. Got -1$"):
        parse([repository, f"--{option}=-1"])
