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
    for number in range(1, _MAX_DEPARTED + 2):
        _add_and_remove(registry, number)

    last = _MAX_DEPARTED + 1
    assert ["", "m2", f"m{last}"] == [_departed(registry, number) for number in (1, 2, last)]


def test_a_model_that_was_ended_and_not_drained_is_not_remembered() -> None:
    registry = GenerationRegistry()

    _add_and_remove(registry, 1, is_drained=False)

    assert "" == _departed(registry, 1)


LATE = "the model was unloaded while the request was on its way"
MORE = '{"output": [{"name": "MORE"}]}'


def _replace(registry: GenerationRegistry, *versions: int, config: str = "{}") -> None:
    """Serve these versions one after the other, as generations 1, 2 and so on."""
    for number, version in enumerate(versions, 1):
        text = config if number == len(versions) else "{}"
        registry.add_or_update(wire.AddGeneration(number, "m", version, text))
        if number > 1:
            registry[number - 1].is_retired = registry[number - 1].is_drained = True
            registry.remove(number - 1)


@pytest.mark.parametrize(
    ("versions", "flags"),
    [((1, 2), wire.ANY_VERSION), ((1, 2, 3), wire.ANY_VERSION), ((1, 1), 0), ((1, 1, 1), 0)],
)
def test_a_request_on_its_way_goes_to_what_was_loaded_in_place_of_its_generation(
    versions: tuple[int, ...], flags: int
) -> None:
    registry = GenerationRegistry()

    _replace(registry, *versions)

    assert len(versions) == registry.find(request(1, 1, flags=flags)).number


@pytest.mark.parametrize(
    ("versions", "flags", "config"),
    [
        ((1, 2), 0, "{}"),  # the client has named version 1
        ((1, 2), wire.ANY_VERSION, MORE),
        ((1, 1), 0, MORE),
    ],
)
def test_a_request_on_its_way_does_not_go_where_it_may_not_fit(
    versions: tuple[int, ...], flags: int, config: str
) -> None:
    registry = GenerationRegistry()

    _replace(registry, *versions, config=config)

    with pytest.raises(NotServed, match=LATE):
        registry.find(request(1, 1, flags=flags))
