"""The models of a steered server, as the server reads them: a whole day needs them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.days.clients import MANY_STREAMS


@pytest.mark.addons
def test_the_model_with_many_streams_is_one_that_the_decorator_takes() -> None:
    names: dict[str, Any] = {}

    exec(MANY_STREAMS, names)

    many = names["Many"]()
    states = [many.admit("a", 2), many.admit("b", 1)]
    assert 1 == many.cost("a", 2)
    assert "a 0" == many.step(states)[0]
