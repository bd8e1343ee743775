"""The number by which a request travels to the broker, from what its client has sent."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.frontends.fake_gateway import FakeGateway
from zmqtriton import addons
from zmqtriton.options.result import Options
from zmqtriton_extras.affinity.rule import number_of
from zmqtriton_floor.datatypes import BY_CONFIG_NAME
from zmqtriton_floor.wire import Reference, RequestBody, Tensor, VersionInfo
from zmqtriton_frontends.entrance.ask import Ask, Content
from zmqtriton_frontends.entrance.entrance import Entrance
from zmqtriton_frontends.gateway.model_settings import apply_settings

_TEXT, _FP32 = BY_CONFIG_NAME["TYPE_STRING"].number, BY_CONFIG_NAME["TYPE_FP32"].number
_INPUTS = [
    {"name": "TEXT", "data_type": "TYPE_STRING", "dims": [-1], "optional": True},
    {"name": "DATA", "data_type": "TYPE_FP32", "dims": [-1], "optional": True},
]


class Frontend(FakeGateway):
    """One with a model m of a rule and one without, named plain."""

    def __init__(self, rule: str) -> None:
        super().__init__([], {"offers": addons.offers_in_use(Options().value)})
        apply_settings(self.catalogue, self.settings, lambda *_: None)  # type: ignore[arg-type]
        for number, name in enumerate(("m", "plain"), 1):
            parameters = {"AFFINITY": {"string_value": rule}} if name == "m" else {}
            config = {"name": name, "input": _INPUTS, "parameters": parameters}
            news = VersionInfo(number, name, 1, "READY", None, 1, json.dumps(config), b"")
            self.catalogue.apply(news)
        self._entrance = Entrance(self, "RECV", "SEND")

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
    frontend = Frontend("header:X-Session")

    assert number_of(b"anna") == frontend.number(headers={b"x-session": "anna"})
    assert number_of("jürgen".encode()) == frontend.number(headers={b"x-session": "jürgen"})
    assert 0 == frontend.number(headers={}) == frontend.number(headers={b"x-session": ""})
    assert frontend.number(headers=None) == 0, "a guest has none"


def test_a_parameter_counts_as_its_text() -> None:
    frontend = Frontend("parameter:lora")

    assert number_of(b"sql") == frontend.number(lora="sql")
    assert number_of(b"7") == frontend.number(lora=7)
    assert frontend.number(other="sql") == 0


def test_of_a_text_the_first_bytes_count_and_not_its_length() -> None:
    frontend = Frontend("input:TEXT:5")

    assert number_of(b"Hello") == frontend.number(text(b"Hello, frontend"))
    assert frontend.number(text(b"Hello!")) == frontend.number(text(b"Hello, you", b"and more"))
    assert frontend.number(text(b"Hell")) != frontend.number(text(b"Hello"))


def test_of_numbers_the_bytes_count_and_without_a_size_all_of_them() -> None:
    first, other = (np.array([1.0, last], "f4").tobytes() for last in (2.0, 3.0))
    whole, half = Frontend("input:DATA"), Frontend("input:DATA:4")

    def of(frontend: Frontend, data: Any) -> int:
        return frontend.number(Tensor("DATA", _FP32, [2], data))

    assert number_of(first) == of(whole, memoryview(bytearray(first)))
    assert of(whole, first) != of(whole, other)
    assert of(half, first) == of(half, other)
    assert whole.number() == 0, "an optional input that is not there"


def test_what_no_frontend_can_read_has_no_number() -> None:
    elsewhere = Reference(9, 1, 1, 0, 8)

    assert Frontend("input:DATA").number(Tensor("DATA", _FP32, [2], elsewhere)) == 0


@pytest.mark.parametrize("rule", ["header:X", "parameter:p", "input:TEXT"])
def test_requests_to_other_models_take_no_step(rule: str) -> None:
    frontend = Frontend(rule)
    plain, ruled = frontend.catalogue.find("plain"), frontend.catalogue.find("m")

    assert (plain.steps, len(ruled.steps)) == ((), 1)
    assert frontend.number(text(b"a"), model="plain", headers={b"x": "a"}, p="a") == 0
    assert frontend.number(text(b"a"), headers={b"x": "a"}, p="a")
