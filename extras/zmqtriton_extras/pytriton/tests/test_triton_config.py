"""TritonConfig from arguments, dictionaries and the environment."""

from __future__ import annotations

import logging
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from zmqtriton_extras.pytriton.exceptions import PyTritonError, PyTritonValidationError
from zmqtriton_extras.pytriton.server_options import TritonConfig

PREFIX = "PYTRITON_TRITON_CONFIG_"
NEITHER = "The `http` or `grpc` endpoint has to be allowed."


def set_fields(config: TritonConfig) -> dict[str, Any]:
    return {name: value for name, value in config.to_dict().items() if value is not None}


@pytest.mark.row("J30")
def test_everything_is_left_to_the_server_by_default() -> None:
    assert {field.name: None for field in fields(TritonConfig)} == TritonConfig().to_dict()
    assert 50 == len(fields(TritonConfig))


def test_arguments_have_names() -> None:
    with pytest.raises(TypeError):
        TritonConfig("models")  # type: ignore[call-arg,arg-type]


@pytest.mark.row("J30")
@pytest.mark.parametrize("off", [False, 0])
def test_one_protocol_is_allowed(off: Any) -> None:
    with pytest.raises(PyTritonValidationError) as caught:
        TritonConfig(allow_http=off, allow_grpc=off)

    assert NEITHER == str(caught.value)
    assert isinstance(caught.value, PyTritonError)
    TritonConfig(allow_http=off)
    TritonConfig(allow_grpc=off, allow_http=True)


@pytest.mark.row("J30")
def test_values_of_a_dictionary_get_the_type_of_their_field() -> None:
    config = TritonConfig.from_dict(
        {
            "http_port": "8080",
            "id": 7,
            "log_file": "log",
            "exit_on_error": 1,
            "cache_config": ("local,size=1",),
            "metrics_config": "setting=1",
            "grpc_port": None,
        }
    )

    assert {
        "http_port": 8080,
        "id": "7",
        "log_file": Path("log"),
        "exit_on_error": True,
        "cache_config": ["local,size=1"],
        "metrics_config": ["setting=1"],
    } == set_fields(config)


@pytest.mark.row("J30")
@pytest.mark.parametrize(
    ("text", "expected"),
    [("true", True), ("True", True), ("1", True), ("on", True), ("false", False), ("OFF", False)],
)
def test_a_word_says_whether(text: str, expected: bool) -> None:
    """PyTriton takes any word for true."""
    assert expected is TritonConfig.from_dict({"allow_http": text}).allow_http


@pytest.mark.row("J30")
@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("http_port", "http", "invalid literal for int"),
        ("http_port", ["1"], "int"),
        ("allow_http", "maybe", "must be true or false"),
        ("id", ["a"], "not one value"),
    ],
)
def test_values_of_another_type_are_refused(name: str, value: Any, reason: str) -> None:
    with pytest.raises(PyTritonValidationError) as caught:
        TritonConfig.from_dict({name: value})

    assert str(caught.value).startswith(f"Invalid value {value!r} for {name}: {reason}")


@pytest.mark.row("J30")
def test_unknown_names_are_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = TritonConfig.from_dict({"httpport": 1, "http_port": 2})

    assert {"http_port": 2} == set_fields(config)
    assert (
        "Ignoring httpport=1 as could not find matching config field. Available fields: "
        "model_repository, id, log_verbose, "
    ) in caplog.text


@pytest.mark.row("J30")
def test_the_environment_has_a_variable_for_each_field(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("GRPC_PORT", "45436"),
        ("ALLOW_METRICS", "false"),
        ("LOG_FILE", "log"),
        ("TRACE_CONFIG_10", "rate=3"),
        ("TRACE_CONFIG_2", "mode=triton"),
        ("CACHE_CONFIG", "local,size=1"),
    ):
        monkeypatch.setenv(PREFIX + name, value)

    assert {
        "grpc_port": 45436,
        "allow_metrics": False,
        "log_file": Path("log"),
        "trace_config": ["mode=triton", "rate=3"],
        "cache_config": ["local,size=1"],
    } == set_fields(TritonConfig.from_env())


@pytest.mark.row("J30")
def test_arguments_come_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{PREFIX}HTTP_PORT", "1")
    monkeypatch.setenv(f"{PREFIX}GRPC_PORT", "2")
    monkeypatch.setenv(f"{PREFIX}EXIT_ON_ERROR", "true")

    config = TritonConfig(http_port=3, exit_on_error=False).over_environment()

    assert {"http_port": 3, "grpc_port": 2, "exit_on_error": False} == set_fields(config)


def test_arguments_and_environment_together_may_allow_no_protocol(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(f"{PREFIX}ALLOW_HTTP", "0")

    with pytest.raises(PyTritonValidationError, match=f"^{NEITHER}$"):
        TritonConfig(allow_grpc=False).over_environment()
