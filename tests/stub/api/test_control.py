"""A model's calls to the control plane: the supervisor's part, and what is refused before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.stub.fakes import FakeLink
from zmqtriton_floor import wire
from zmqtriton_floor.errors import NotFound
from zmqtriton_stub import instance
from zmqtriton_stub.api import control
from zmqtriton_stub.api.errors import TritonModelException


class ControlPlane:
    """Stands for the supervisor."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.answer: Any = None

    def call(self, verb: str, document: str) -> Any:
        self.calls.append((verb, json.loads(document)))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def plane(monkeypatch: pytest.MonkeyPatch) -> ControlPlane:
    plane = ControlPlane()
    current = FakeLink().instance
    current.call = plane.call
    monkeypatch.setattr(instance, "current", current)
    return plane


def test_a_model_is_loaded_with_its_configuration_or_without(plane: ControlPlane) -> None:
    control.load_model("other")
    control.load_model("other", '{"backend": "python"}')

    assert [
        ("load", {"model": "other", "parameters": {}}),
        ("load", {"model": "other", "parameters": {"config": '{"backend": "python"}'}}),
    ] == plane.calls


def test_files_that_are_no_files_are_the_supervisor_s_to_refuse(plane: ControlPlane) -> None:
    control.load_model("other", "{}", {"1/model.py": b"x"})

    [(_, arguments)] = plane.calls
    assert {"config": "{}", "1/model.py": ""} == arguments["parameters"]


def test_a_model_is_unloaded_alone_or_with_what_it_calls(plane: ControlPlane) -> None:
    control.unload_model("other")
    control.unload_model("other", True)

    assert [
        ("unload", {"model": "other", "unload_dependents": False}),
        ("unload", {"model": "other", "unload_dependents": True}),
    ] == plane.calls


@pytest.mark.parametrize(("text", "version"), [("", -1), ("0", 0), ("3", 3)])
@pytest.mark.parametrize("is_ready", [True, False])
def test_readiness_is_that_of_a_version_or_of_any(
    plane: ControlPlane, text: str, version: int, is_ready: bool
) -> None:
    plane.answer = is_ready

    assert is_ready is control.is_model_ready("other", text)

    assert [("ready", {"model": "other", "version": version})] == plane.calls


@pytest.mark.parametrize("version", ["-1", "1.5", "x"])
def test_a_version_that_is_none_is_refused(plane: ControlPlane, version: str) -> None:
    with pytest.raises(TritonModelException, match="failed to get model version from specified"):
        control.is_model_ready("other", version)

    assert [] == plane.calls


@pytest.mark.parametrize(
    "call",
    [
        lambda: control.load_model(1),  # type: ignore[arg-type]
        lambda: control.load_model("m", {}),  # type: ignore[arg-type]
        lambda: control.load_model("m", "{}", {"file:a": "text"}),
        lambda: control.unload_model("m", 1),  # type: ignore[arg-type]
        lambda: control.is_model_ready("m", 1),  # type: ignore[arg-type]
    ],
)
def test_an_argument_of_another_type_is_refused(plane: ControlPlane, call: Any) -> None:
    with pytest.raises(TypeError, match="takes a"):
        call()

    assert [] == plane.calls


def test_files_are_a_dictionary(plane: ControlPlane) -> None:
    with pytest.raises(TritonModelException, match="files should be a dictionary"):
        control.load_model("m", "{}", [b"x"])

    assert [] == plane.calls


def test_what_the_supervisor_refuses_is_told_with_its_text(plane: ControlPlane) -> None:
    plane.answer = NotFound("there is no 'other'")

    with pytest.raises(TritonModelException, match=r"Failed to unload model.*there is no 'other'"):
        control.unload_model("other")


def test_a_call_that_is_too_large_is_not_made(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MAX_DOCUMENT", 100)

    with pytest.raises(TritonModelException, match="the request is too large"):
        control.load_model("m", "x" * 100)

    assert [] == plane.calls


def test_a_model_that_is_not_being_served_controls_nothing(plane: ControlPlane) -> None:
    assert instance.current is not None
    instance.current.call = None

    for call in (lambda: control.unload_model("m"), lambda: control.load_model("m", files={})):
        with pytest.raises(TritonModelException, match="models are controlled from initialize"):
            call()
