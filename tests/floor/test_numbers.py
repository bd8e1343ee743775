"""Numbers of clients become limits only if they are finite and in range."""

from __future__ import annotations

import math
from typing import Any

import pytest

from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.numbers import in_text, integer, number


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, -1, 1e6 + 1, 2**63, 10**400, True, "5", None, [], 1e400],
)
def test_a_number_that_is_no_limit_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="'x' must be a number from 0 to 1,000,000"):
        number("x", value, 0, 1e6)
    with pytest.raises(InvalidArgument, match="'x' must be an integer from 0 to 1,000,000"):
        integer("x", value, 0, 1_000_000)


@pytest.mark.parametrize(
    "text", ["nan", "inf", "1e400", "1_0", " 1", "１", "0x5", "+1", ".5", "1.", "", "1" * 5000]
)
def test_a_text_that_is_no_plain_number_has_none(text: str) -> None:
    assert in_text(text) is None


def test_others_are_as_they_were_written() -> None:
    assert [5, -1, 2.5] == [in_text("5"), in_text("-1"), in_text("2.5")]
    assert 2.5 == number("x", 2.5, 0, 10)
    assert 5 == integer("x", 5, 5, 5)
    with pytest.raises(InvalidArgument, match="an integer"):
        integer("x", 2.5, 0, 10)
