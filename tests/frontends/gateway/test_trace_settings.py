"""Trace settings as clients write them: which are understood, and what is said of the others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from zmqtriton_floor.errors import InvalidArgument, NotFound, Unsupported
from zmqtriton_frontends.gateway import trace_settings


class Catalogue:
    def __init__(self, **is_ready: bool) -> None:
        self._is_ready = is_ready

    def is_model_ready(self, model: str) -> bool:
        if model not in self._is_ready:
            raise NotFound(model)
        return self._is_ready[model]


class Gateway:
    def __init__(self, **is_ready: bool) -> None:
        self.catalogue = Catalogue(**is_ready)
        self.calls: list[tuple[str, dict[str, Any]]] = []

    async def call(self, verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self.calls.append((verb, arguments))
        return {"trace_rate": "7"}


@pytest.mark.parametrize(
    ("key", "text", "shown"),
    [
        ("trace_rate", "0", "0"),
        ("trace_rate", "4294967295", "4294967295"),
        ("trace_count", "-1", "-1"),
        ("trace_count", "2147483647", "2147483647"),
        ("log_frequency", "\t +05 apples", "5"),
    ],
)
def test_a_number_is_read_as_c_reads_it(key: str, text: str, shown: str) -> None:
    assert shown == trace_settings.number(key, text)


@pytest.mark.parametrize(
    ("key", "text", "error"),
    [
        ("trace_rate", "apples", "Unable to parse 'trace_rate', got: apples"),
        (
            "trace_rate",
            "4294967296",
            "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], "
            "got: 4294967296",
        ),
        (
            "trace_rate",
            "-1",
            "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: -1",
        ),
        ("trace_count", "-2", "Unable to parse 'trace_count'. Expecting value >= -1, got: -2"),
        (
            "trace_count",
            "-2147483648",
            "Unable to parse 'trace_count'. Expecting value >= -1, got: -2147483648",
        ),
        (
            "trace_count",
            "-2147483649",
            "Unable to parse 'trace_count', value is out of range [ -1, 2147483647 ], "
            "got: -2147483649",
        ),
        (
            "trace_count",
            "9" * 5000,
            "Unable to parse 'trace_count', value is out of range [ -1, 2147483647 ], "
            f"got: {'9' * 5000}",
        ),
    ],
)
def test_what_is_no_number_or_out_of_its_range_is_refused(key: str, text: str, error: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        trace_settings.number(key, text)

    assert error == caught.value.text


def test_the_word_before_a_count_is_the_protocol_s() -> None:
    with pytest.raises(InvalidArgument, match=r"Expecting value >= -1, but got -5"):
        trace_settings.number("trace_count", "-5", "but got ")


@pytest.mark.parametrize(
    ("names", "levels"),
    [
        (["OFF"], ["OFF"]),
        (["TENSORS", "TIMESTAMPS"], ["TIMESTAMPS", "TENSORS"]),
        (["TENSORS", "apples"], ["TENSORS"]),
        (["apples"], None),
        ([], None),
    ],
)
def test_levels_that_are_not_known_change_nothing(
    names: list[str], levels: list[str] | None
) -> None:
    assert levels == trace_settings.level(names)


def test_off_stands_alone() -> None:
    with pytest.raises(InvalidArgument, match="Expect only one trace level 'OFF'"):
        trace_settings.level(["TENSORS", "OFF"])


def test_the_file_is_the_operator_s() -> None:
    trace_settings.check_names({"trace_rate": "1"})
    with pytest.raises(Unsupported, match="can not be updated"):
        trace_settings.check_names({"trace_file": "/tmp/x"})


def test_settings_are_changed_for_all_or_for_a_model_that_is_served() -> None:
    gateway: Any = Gateway(m=True, loading=False)
    changes = {"trace_rate": "7"}

    for model in ("", "m"):
        assert changes == asyncio.run(trace_settings.apply(gateway, model, changes))

    for model in ("loading", "unknown"):
        with pytest.raises(InvalidArgument, match=f"unknown model : {model}"):
            asyncio.run(trace_settings.apply(gateway, model, changes))
    assert [("trace.settings", {"model": m, "changes": changes}) for m in ("", "m")] == (
        gateway.calls
    )
