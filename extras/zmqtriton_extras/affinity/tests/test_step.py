"""The number by which a request travels to the broker, from what its client has sent."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.supervisor.settings import frontend_settings
from zmqtriton import addons
from zmqtriton_extras.affinity.rule import number_of
from zmqtriton_floor.datatypes import BY_CONFIG_NAME
from zmqtriton_floor.wire import Reference, RequestBody, Tensor, VersionInfo
from zmqtriton_frontends.entrance.ask import Ask, Content
from zmqtriton_frontends.entrance.entrance import Entrance
from zmqtriton_frontends.gateway.model_settings import apply_settings
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_frontends.inference.trace_sampling import Traces

_TEXT, _FP32 = BY_CONFIG_NAME["TYPE_STRING"].number, BY_CONFIG_NAME["TYPE_FP32"].number
_INPUTS = [
    {"name": "TEXT", "data_type": "TYPE_STRING", "dims": [-1], "optional": True},
    {"name": "DATA", "data_type": "TYPE_FP32", "dims": [-1], "optional": True},
]


class World:
    """A frontend with a model m of a rule and one without, named plain."""

    def __init__(self, rule: str) -> None:
        settings = frontend_settings("http", parts=addons.parts())
        self.catalogue = Catalogue()
        apply_settings(self.catalogue, settings, lambda *_: None)  # type: ignore[arg-type]
        for number, name in enumerate(("m", "plain"), 1):
            parameters = {"AFFINITY": {"string_value": rule}} if name == "m" else {}
            config = {"name": name, "input": _INPUTS, "parameters": parameters}
            news = VersionInfo(number, name, 1, "READY", None, 1, json.dumps(config), b"")
            self.catalogue.apply(news)
        gateway: Any = SimpleNamespace(
            settings=settings, catalogue=self.catalogue, traces=Traces(), entrances=None
        )
        self._entrance = Entrance(gateway, "RECV", "SEND")

    def number(
        self,
        *inputs: Tensor,
        model: str = "m",
        headers: dict[bytes, str] | None = None,
        **parameters: Any,
    ) -> int:
        body = RequestBody("", parameters, [], list(inputs))
        header = None if headers is None else headers.get
        return self._entrance.enter(
            Ask((model, ""), lambda _: Content(body), header)
        ).options.placement


def text(*elements: bytes) -> Tensor:
    data = b"".join(len(one).to_bytes(4, "little") + one for one in elements)
    return Tensor("TEXT", _TEXT, [len(elements)], data)


def test_a_header_is_found_whatever_its_case() -> None:
    world = World("header:X-Session")

    assert number_of(b"anna") == world.number(headers={b"x-session": "anna"})
    assert number_of("jürgen".encode()) == world.number(headers={b"x-session": "jürgen"})
    assert 0 == world.number(headers={}) == world.number(headers={b"x-session": ""})
    assert world.number(headers=None) == 0, "a guest has none"


def test_a_parameter_counts_as_its_text() -> None:
    world = World("parameter:lora")

    assert number_of(b"sql") == world.number(lora="sql")
    assert number_of(b"7") == world.number(lora=7)
    assert world.number(other="sql") == 0


def test_of_a_text_the_first_bytes_count_and_not_its_length() -> None:
    world = World("input:TEXT:5")

    assert number_of(b"Hello") == world.number(text(b"Hello, world"))
    assert world.number(text(b"Hello!")) == world.number(text(b"Hello, you", b"and more"))
    assert world.number(text(b"Hell")) != world.number(text(b"Hello"))


def test_of_numbers_the_bytes_count_and_without_a_size_all_of_them() -> None:
    first, other = (np.array([1.0, last], "f4").tobytes() for last in (2.0, 3.0))
    whole, half = World("input:DATA"), World("input:DATA:4")

    def of(world: World, data: Any) -> int:
        return world.number(Tensor("DATA", _FP32, [2], data))

    assert number_of(first) == of(whole, memoryview(bytearray(first)))
    assert of(whole, first) != of(whole, other)
    assert of(half, first) == of(half, other)
    assert whole.number() == 0, "an optional input that is not there"


def test_what_no_frontend_can_read_has_no_number() -> None:
    elsewhere = Reference(9, 1, 1, 0, 8)

    assert World("input:DATA").number(Tensor("DATA", _FP32, [2], elsewhere)) == 0


@pytest.mark.parametrize("rule", ["header:X", "parameter:p", "input:TEXT"])
def test_requests_to_other_models_take_no_step(rule: str) -> None:
    world = World(rule)
    plain, ruled = world.catalogue.find("plain"), world.catalogue.find("m")

    assert (plain.steps, len(ruled.steps)) == ((), 1)
    assert world.number(text(b"a"), model="plain", headers={b"x": "a"}, p="a") == 0
    assert world.number(text(b"a"), headers={b"x": "a"}, p="a")
