"""The generations of a broker, without requests."""

from __future__ import annotations

import pytest

from tests.broker.world import request
from zmqtriton.broker.scheduling.generations import (
    _MAX_DEPARTED,
    GenerationRegistry,
    NotServed,
)
from zmqtriton_floor import wire


def _add_and_remove(registry: GenerationRegistry, number: int, *, is_drained: bool = True) -> None:
    registry.add_or_update(wire.AddGeneration(number, f"m{number}", 1, "{}"))
    registry[number].is_drained = is_drained
    registry.remove(number)


def _departed(registry: GenerationRegistry, number: int) -> str:
    """Return the model of a generation that is gone, if it is remembered."""
    with pytest.raises(NotServed) as refused:
        registry.find(request(1, number))
    return refused.value.model


def test_models_that_go_and_come_back_are_remembered_for_a_while() -> None:
    registry = GenerationRegistry()
    registry.keeps_departed = True
    for number in range(1, _MAX_DEPARTED + 2):
        _add_and_remove(registry, number)

    last = _MAX_DEPARTED + 1
    assert ["", "m2", f"m{last}"] == [_departed(registry, number) for number in (1, 2, last)]


def test_a_model_that_was_ended_and_not_drained_is_not_remembered() -> None:
    registry = GenerationRegistry()
    registry.keeps_departed = True

    _add_and_remove(registry, 1, is_drained=False)

    assert "" == _departed(registry, 1)


def test_where_models_do_not_go_by_themselves_nothing_is_remembered() -> None:
    registry = GenerationRegistry()

    _add_and_remove(registry, 1)

    assert "" == _departed(registry, 1)
