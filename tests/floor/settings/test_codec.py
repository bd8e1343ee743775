"""Settings on their way to a process: all of them arrive, and what does not fit is an error."""

from __future__ import annotations

import json
from typing import NamedTuple, Optional

import pytest

from tests.supervisor.settings import frontend_settings
from zmqtriton_floor.settings.broker import BrokerSettings, RateLimitResource, RateLimits
from zmqtriton_floor.settings.codec import SettingsError, decode, encode
from zmqtriton_floor.settings.frontends import FrontendSettings, Restriction
from zmqtriton_floor.settings.stub import StubSettings
from zmqtriton_floor.settings.tracing import Sampling, TracerSettings, TracingSettings


class _Part(NamedTuple):
    size: float
    pair: tuple[str, int]


class _Whole(NamedTuple):
    part: _Part
    names: tuple[str, ...] = ()
    port: Optional[int] = None  # noqa: UP045
    is_on: bool = False


_WHOLE = _Whole(_Part(0.5, ("a", 1)), ("x", "y"), 80, True)
_DOCUMENT = json.loads(encode(_WHOLE))


@pytest.mark.parametrize(
    "settings",
    [
        _WHOLE,
        _Whole(_Part(1.0, ("", 0))),
        StubSettings(trace_mode="opentelemetry"),
        BrokerSettings(rate=RateLimits(True, (RateLimitResource("R", 2, -1),))),
        TracerSettings(opentelemetry=(("url", "http://c"), ("resource", "a=b"))),
        frontend_settings(
            "http",
            http_restricted_api=(Restriction(("trace",), "k", "v"),),
            http_use_ssl=True,
            metrics_port=9,
        )._replace(
            tracing=TracingSettings("triton", (Sampling("m", ("TENSORS",), 1, -1, 0, "m 2"),))
        ),
    ],
)
def test_settings_arrive_as_they_left(settings: NamedTuple) -> None:
    arrived = decode(type(settings), encode(settings))

    assert settings == arrived
    assert repr(settings) == repr(arrived)  # an int is no bool, a list no tuple


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"other": 1}, r"_Whole: unknown \['other'\], missing \[\]"),
        ({"port": "80"}, "_Whole.port: str in place of int"),
        ({"port": True}, "_Whole.port: bool in place of int"),
        ({"is_on": 1}, "_Whole.is_on: int in place of bool"),
        ({"is_on": None}, "_Whole.is_on: NoneType in place of bool"),
        ({"names": "x"}, "_Whole.names: str in place of a list"),
        ({"names": ["x", 1]}, "_Whole.names: int in place of str"),
        ({"part": []}, "_Whole.part: list in place of an object"),
        ({"part": {"size": 1, "pair": ["a"]}}, "_Whole.part.pair: 1 parts in place of 2"),
        ({"part": {"size": "1", "pair": ["a", 1]}}, "_Whole.part.size: str in place of float"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, object], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        decode(_Whole, json.dumps({**_DOCUMENT, **changes}))


def test_nothing_may_be_missing() -> None:
    rest = {name: value for name, value in _DOCUMENT.items() if name != "is_on"}

    with pytest.raises(SettingsError, match=r"unknown \[\], missing \['is_on'\]"):
        decode(_Whole, json.dumps(rest))


@pytest.mark.parametrize("document", ["", "{", "[]", "null"])
def test_another_document_is_refused(document: str) -> None:
    with pytest.raises(SettingsError, match="FrontendSettings: "):
        FrontendSettings.decode(document)
