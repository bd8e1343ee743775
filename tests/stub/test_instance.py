"""The configuration of an instance, and the words for what the server refuses."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

import pytest

from tests.stub.fakes import FakeLink
from zmqtriton_floor.variables import stub_mark
from zmqtriton_stub import instance
from zmqtriton_stub.api.errors import TritonModelException
from zmqtriton_stub.instance import Instance


def configured(**config: Any) -> Instance:
    instance = FakeLink().instance
    instance.configure(json.dumps({"name": "m", **config}))
    return instance


def inflight(text: str) -> dict[str, Any]:
    return {"MAX_INFLIGHT": {"string_value": text}}


@pytest.mark.parametrize(("text", "batches"), [("1", 1), ("7", 7), ("1024", 1024)])
def test_the_number_of_batches_at_once_is_a_parameter(text: str, batches: int) -> None:
    assert batches == configured(parameters=inflight(text)).max_inflight


@pytest.mark.parametrize("text", ["0", "1025", "-1", "x", "", "1.0"])
def test_a_number_of_batches_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a number from 1 to 1024") as caught:
        configured(parameters=inflight(text))

    assert str(caught.value).endswith(f"got '{text}'")


def test_a_model_that_says_nothing_has_one_batch_at_a_time() -> None:
    assert 0 == configured().max_inflight
    assert 0 == configured(parameters={"other": {"string_value": "x"}}).max_inflight


def test_controls_of_sequences_are_counted() -> None:
    controls: list[dict[str, Any]] = [{"control": [{}, {}]}, {"control": [{}]}, {}]

    assert 3 == configured(sequence_batching={"control_input": controls}).controls
    assert 0 == configured().controls


def test_a_program_that_a_model_has_started_is_no_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(stub_mark.VARIABLE, raising=False)
    instance.check_is_no_program()

    monkeypatch.setenv(stub_mark.VARIABLE, "1")
    with pytest.raises(TritonModelException, match="this process was started by a model"):
        instance.check_is_no_program()
    monkeypatch.setattr(instance, "current", FakeLink().instance)
    instance.check_is_no_program()


@pytest.mark.parametrize(
    ("error", "status", "shows"),
    [(None, 0, False), (SystemExit(), 1, False), (ValueError("broken"), 1, True)],
)
def test_a_fork_that_comes_back_from_the_models_code_ends(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException | None,
    status: int,
    shows: bool,
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)

    try:
        if error is not None:
            raise error
        instance.end_forked()
    except (SystemExit, ValueError):
        instance.end_forked()

    assert [status] == ended
    shown = capsys.readouterr().err
    assert ("ValueError: broken" in shown, bool(shown)) == (shows, shows)


def test_a_fork_gives_up_what_is_the_instance_s(monkeypatch: pytest.MonkeyPatch) -> None:
    abandoned: list[str] = []
    monkeypatch.setattr(instance, "is_forked", False)
    monkeypatch.setattr(instance, "on_fork", [lambda: abandoned.append("connection")])

    instance.become_forked()

    assert instance.is_forked
    assert ["connection"] == abandoned


def test_each_thread_may_have_an_instance_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, others = FakeLink().instance, FakeLink().instance
    monkeypatch.setattr(instance, "current", mine)
    seen: list[Any] = []

    def run() -> None:
        seen.append(instance.here())
        instance.take_thread(others)
        seen.append(instance.here())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

    assert [mine, others] == seen
    assert instance.here() is mine
