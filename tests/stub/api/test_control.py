"""Calls of models beside inference: control, metrics and their own config."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.stub.fakes import FakeLink, body
from tests.support.refusals import refusal
from zmqtriton_floor import stub_mark, wire
from zmqtriton_floor.errors import NotFound
from zmqtriton_stub import instance
from zmqtriton_stub.api import callers, functions
from zmqtriton_stub.api.callers import NOBODY, Caller, find_caller
from zmqtriton_stub.api.errors import TritonModelException
from zmqtriton_stub.api.metrics import MetricFamily
from zmqtriton_stub.api.pb_utils import ModelConfig
from zmqtriton_stub.execution.responses import OpenRequest

# ----------------------------------------------------------------------------- control
# A model's calls to the control plane: the supervisor's part, and what is refused before.


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


def test_files_that_are_no_files_are_the_supervisor_s_to_refuse(plane: ControlPlane) -> None:
    functions.load_model("other", "{}", {"1/model.py": b"x"})

    [(_, arguments)] = plane.calls
    assert {"config": "{}", "1/model.py": ""} == arguments["parameters"]


def test_a_program_that_a_model_has_started_controls_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(stub_mark.VARIABLE, "1")

    with pytest.raises(TritonModelException, match="this process was started by a model"):
        functions.load_model("other")


@pytest.mark.parametrize(("text", "version"), [("", -1), ("0", 0), ("3", 3)])
@pytest.mark.parametrize("is_ready", [True, False])
def test_readiness_is_that_of_a_version_or_of_any(
    plane: ControlPlane, text: str, version: int, is_ready: bool
) -> None:
    plane.answer = is_ready

    assert is_ready is functions.is_model_ready("other", text)

    assert [("ready", {"model": "other", "version": version})] == plane.calls


_NO_VERSION = "failed to get model version from specified"


@pytest.mark.parametrize(
    ("function", "arguments", "error", "text"),
    [
        (functions.load_model, [1], TypeError, "takes a"),
        (functions.load_model, ["m", {}], TypeError, "takes a"),
        (functions.load_model, ["m", "{}", {"file:a": "text"}], TypeError, "takes a"),
        (functions.load_model, ["m", "{}", [b"x"]], TritonModelException, "should be a dictionary"),
        (functions.unload_model, ["m", 1], TypeError, "takes a"),
        (functions.is_model_ready, ["m", 1], TypeError, "takes a"),
        *(
            (functions.is_model_ready, ["m", one], TritonModelException, _NO_VERSION)
            for one in ("-1", "1.5", "x")
        ),
    ],
)
def test_an_argument_of_another_type_or_form_is_refused(
    plane: ControlPlane, function: Any, arguments: list[Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        function(*arguments)

    assert [] == plane.calls


def test_what_the_supervisor_refuses_is_told_with_its_text(plane: ControlPlane) -> None:
    plane.answer = NotFound("there is no 'other'")

    with pytest.raises(TritonModelException, match=r"Failed to unload model.*there is no 'other'"):
        functions.unload_model("other")


def test_a_call_that_is_too_large_is_not_made(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MAX_DOCUMENT", 100)

    with pytest.raises(TritonModelException, match="the request is too large"):
        functions.load_model("m", "x" * 100)

    assert [] == plane.calls


def test_a_model_that_is_not_being_served_controls_nothing(plane: ControlPlane) -> None:
    assert instance.current is not None
    instance.current.call = None

    for call in (lambda: functions.unload_model("m"), lambda: functions.load_model("m", files={})):
        with pytest.raises(TritonModelException, match="models are controlled from initialize"):
            call()


# ----------------------------------------------------------------------------- callers
# The requests on whose behalf a model's code runs, as its calls and its log lines tell of them.


@pytest.fixture(autouse=True)
def _nobody_afterwards() -> Iterator[None]:
    token = callers.served.set(())

    yield

    callers.served.reset(token)


def served(
    own_id: int, *, deadline_ns: int = 0, flags: int = 0, is_answered: bool = False
) -> OpenRequest:
    pending = FakeLink().add_request(body(), own_id)
    pending.work = pending.work._replace(deadline_ns=deadline_ns, flags=flags)
    pending.request_id = f"r{own_id}"
    if is_answered:
        pending.fail("over")
    return pending


def serve(*batch: OpenRequest) -> None:
    callers.served.set(batch)


def test_outside_of_execute_nobody_asks() -> None:
    assert NOBODY == find_caller()
    assert [] == callers.request_ids()


def test_a_call_for_a_request_without_deadline_has_none() -> None:
    serve(served(1, deadline_ns=30), served(2))

    assert Caller(0, 3, 1) == find_caller()


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_call_for_requests_that_are_over_is_nobody_s(is_answered: bool) -> None:
    serve(
        served(1, deadline_ns=90, is_answered=is_answered, flags=0 if is_answered else wire.PADDING)
    )

    assert NOBODY == find_caller()


def test_the_spans_of_traced_requests_are_named() -> None:
    spans = [f"00-{digit * 32}-{digit * 16}-01" for digit in "ab"]
    traced = [served(1), served(2), served(3)]
    for pending, trace in zip(traced, (f"{spans[0]} a=b", "", spans[1]), strict=True):
        pending.work = pending.work._replace(trace=trace)
    serve(*traced)

    assert " ".join(spans) == callers.traceparents()


# ----------------------------------------------------------------------------- metrics
# Metric families and metrics of a model: what may be made, and when they are gone.


COUNTER, GAUGE, HISTOGRAM = MetricFamily.COUNTER, MetricFamily.GAUGE, MetricFamily.HISTOGRAM


@pytest.fixture
def measures(monkeypatch: pytest.MonkeyPatch) -> Any:
    current = FakeLink().instance
    monkeypatch.setattr(instance, "current", current)
    return current.measures


def test_what_nobody_holds_is_dropped(measures: Any) -> None:
    family, kept = MetricFamily("f", "about", COUNTER), MetricFamily("g", "about", GAUGE)
    metric, other = family.Metric({"a": "b"}), kept.Metric()
    # what is told when it is collected has its number
    assert family._life is not None
    assert metric._measured is not None
    of_family, of_metric = family._life.number, metric._measured.number

    del metric, family

    assert [["drop", of_metric], ["drop", of_family]] == [
        row for _, verb, row in measures.changes if verb == "drop"
    ]
    other.value()  # sums up what has happened
    assert measures.find(of_metric) is None


def test_a_metric_of_a_family_that_is_gone_cannot_be_changed(measures: Any) -> None:
    family = MetricFamily("f", "about", COUNTER)
    metric = family.Metric()
    metric.increment(1)

    del family

    with pytest.raises(TritonModelException):
        metric.increment(1)


def test_a_family_that_was_never_made_is_let_go_in_silence(measures: Any) -> None:
    with pytest.raises(TritonModelException, match="Invalid metric name"):
        MetricFamily("not a name", "about", COUNTER)

    MetricFamily.__new__(MetricFamily).__del__()


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        (COUNTER, {"labels": ["a"]}, "Labels must be a dictionary"),
        (COUNTER, {"buckets": 1}, "Buckets must be a list"),
        (COUNTER, {"buckets": [1.0]}, "Unexpected buckets found"),
        (HISTOGRAM, {}, "Missing required buckets"),
        (HISTOGRAM, {"buckets": [2.0, 1.0]}, "Bucket Boundaries must be strictly sorted"),
        (GAUGE, {"labels": {"a": 1}}, "attempt to access JSON non-string as string"),
    ],
)
def test_what_makes_no_metric_is_refused(
    measures: Any, kind: Any, arguments: dict[str, Any], text: str
) -> None:
    family = MetricFamily("f", "about", kind)

    with pytest.raises(TritonModelException, match=text):
        family.Metric(**arguments)


# ------------------------------------------------------------------------ model config


_TENSOR: dict[str, Any] = {"name": "A", "data_type": "TYPE_FP32", "dims": [4]}


def _config(**fields: Any) -> ModelConfig:
    return ModelConfig(json.dumps({"name": "m", "max_batch_size": 0, **fields}))


@pytest.mark.row("A80")
def test_as_dict_is_the_configuration_itself() -> None:
    config = _config()

    config.as_dict()["max_batch_size"] = 4

    assert json.loads(config.as_json())["max_batch_size"] == 4


@pytest.mark.row("A81")
def test_max_batch_size_may_grow_only() -> None:
    config = _config(max_batch_size=4)
    for size in (8, 8):
        config.set_max_batch_size(size)
        assert config.as_dict()["max_batch_size"] == size

    assert refusal(ValueError, config.set_max_batch_size, 2) == (
        "configuration specified max_batch_size 8, but in auto-complete-config function for model "
        "'m' specified max_batch_size 2"
    )


@pytest.mark.row("A82")
def test_dynamic_batching_is_set_once_and_never_beside_another_scheduler() -> None:
    config = _config()
    config.set_dynamic_batching()
    config.as_dict()["dynamic_batching"]["preferred_batch_size"] = [2]
    config.set_dynamic_batching()
    assert config.as_dict()["dynamic_batching"] == {"preferred_batch_size": [2]}

    with pytest.raises(ValueError, match="sequence_batching"):
        _config(sequence_batching={}).set_dynamic_batching()


@pytest.mark.row("A83", "A84")
def test_tensors_are_added_or_completed() -> None:
    unknown: dict[str, Any] = {"name": "A", "data_type": "TYPE_INVALID", "dims": []}
    config = _config(input=[unknown], output=[unknown])

    config.add_input({**_TENSOR, "optional": True})
    config.add_input({**_TENSOR, "name": "B"})
    config.add_output(_TENSOR)

    assert config.as_dict()["input"] == [{**_TENSOR, "optional": True}, {**_TENSOR, "name": "B"}]
    assert config.as_dict()["output"] == [_TENSOR]


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (
            {"data_type": "TYPE_FP32", "dims": [4]},
            "input in auto-complete-config function for model 'm' is missing 'name' property.",
        ),
        (
            {"name": "A", "dims": [4]},
            "input 'A' in auto-complete-config function for model 'm' is missing 'data_type' "
            "property.",
        ),
        (
            {**_TENSOR, "reshape": []},
            "input 'A' in auto-complete-config function for model 'm' contains property other than "
            "'name', 'data_type', 'dims' and 'optional'.",
        ),
        (
            {**_TENSOR, "data_type": "TYPE_INT8"},
            "unable to load model 'm', configuration expects datatype TYPE_FP32 for input 'A', "
            "model provides TYPE_INT8",
        ),
        (
            {**_TENSOR, "dims": [5]},
            "model 'm', tensor 'A': the model expects dims [5] but the model configuration "
            "specifies dims [4]",
        ),
        (
            {**_TENSOR, "optional": True},
            "model 'm', tensor 'A': the model expects optional True but the model configuration "
            "specifies optional False",
        ),
    ],
)
@pytest.mark.row("A83")
def test_a_tensor_that_contradicts_is_refused(tensor: dict[str, Any], text: str) -> None:
    config = _config(input=[{**_TENSOR, "optional": False}])

    assert refusal(ValueError, config.add_input, tensor) == text


@pytest.mark.row("A84")
def test_an_output_is_never_optional() -> None:
    with pytest.raises(ValueError, match="other than 'name', 'data_type' and 'dims'\\."):
        _config().add_output({**_TENSOR, "optional": True})


@pytest.mark.row("A85")
def test_the_transaction_policy_may_be_set_but_not_turned_around() -> None:
    config = _config()
    config.set_model_transaction_policy({"decoupled": True})
    config.set_model_transaction_policy({"decoupled": True})
    assert config.as_dict()["model_transaction_policy"] == {"decoupled": True}

    assert refusal(ValueError, config.set_model_transaction_policy, {"decoupled": False}) == (
        "trying to change decoupled property in auto-complete-config for model 'm', which is "
        "already set to 'True'."
    )
    with pytest.raises(ValueError, match="other than 'decoupled'"):
        config.set_model_transaction_policy({"other": 1})
