"""Which requests are admitted to which models, and classes of outputs."""

from __future__ import annotations

import json
import logging
from typing import Any

import numpy as np
import pytest

from tests.floor.reasons import because
from tests.frontends.fake_gateway import prepared, tensor_config, version_info
from tests.support.refusals import refusal
from zmqtriton_floor import logs, wire
from zmqtriton_floor.datatypes import BY_NAME, BYTES
from zmqtriton_floor.errors import InternalError, InvalidArgument, NotFound, Unavailable
from zmqtriton_floor.reasons import Kind, Reason
from zmqtriton_floor.tensors import decode_bytes
from zmqtriton_floor.wire import RepositoryState, ResponseBody, Tensor, VersionInfo
from zmqtriton_frontends.inference.admission import SchedulingOptions, prepare
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_frontends.inference.classification import classify
from zmqtriton_frontends.inference.model_version import ModelVersion
from zmqtriton_frontends.process import request_log

# --------------------------------------------------------------------------- admission
# Refusals of what no wire could carry, whatever protocol it came by.


@pytest.fixture
def catalogue() -> Catalogue:
    return Catalogue()


@pytest.mark.parametrize(
    "options",
    [
        SchedulingOptions(priority=-1),
        SchedulingOptions(priority=2**63),
        SchedulingOptions(timeout_us=-1),
        SchedulingOptions(timeout_us=2**63),
        SchedulingOptions(deadline_ns=2**63),
        SchedulingOptions(correlation=-1),
        SchedulingOptions(correlation=2**64),
        SchedulingOptions(correlation="x" * 1025),
    ],
)
def test_options_that_no_header_could_carry_are_refused(options: SchedulingOptions) -> None:
    with pytest.raises(InvalidArgument, match=r"must be from 0 to|must fit into 64"):
        prepared(version_info(input=[]), options)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 10**30])
def test_parameters_that_no_body_could_carry_are_refused(value: int) -> None:
    with pytest.raises(InvalidArgument, match="'a' must fit into 64 bits"):
        prepared(version_info(input=[]), a=value)


@pytest.mark.parametrize("escaped", ["1", "0"])
@pytest.mark.row("I06")
def test_a_refusal_is_a_verbose_line_that_a_client_cannot_end(
    catalogue: Catalogue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    escaped: str,
) -> None:
    monkeypatch.setenv("TRITON_SERVER_ESCAPE_LOG_MESSAGES", escaped)
    monkeypatch.setattr(request_log, "is_on", True)
    caplog.set_level(logging.DEBUG)
    catalogue.update(version_info("n"))
    forged = "I0205 18:34:18.707423 1 file.cc:123] forged"
    body = wire.RequestBody("r", {}, [], [wire.Tensor(f"\n{forged}\n{forged}", 11, [1], bytes(4))])

    model = catalogue.find("n")
    text = refusal(InvalidArgument, prepare, catalogue, model, body, SchedulingOptions())

    [record] = caplog.records
    assert f"[request id: r] Infer failed: {text}" == record.getMessage()
    # only an operator who wants texts as they are has them so
    assert (forged in logs.Formatter().format(record).splitlines()) == (escaped == "0")


@pytest.mark.row("I06")
def test_a_request_that_fits_is_described_in_verbose_lines(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(request_log, "is_on", True)
    caplog.set_level(logging.DEBUG)
    outputs = [tensor_config(name, "FP32", [2]) for name in ("Y", "Z")]
    catalogue.update(version_info("n", version=3, max_batch_size=4, output=outputs))
    tensor = wire.Tensor("INPUT0", 11, [1, 2], bytes(8))

    for asked in ([], ["Z"]):
        body = wire.RequestBody("r", {}, asked, [tensor])
        prepare(catalogue, catalogue.find("n"), body, SchedulingOptions(priority=2, correlation=7))

    lines = [record.getMessage().splitlines() for record in caplog.records]
    described = [more for first, *more in lines if "prepared: " in first]
    inputs = ["inputs:", "input: INPUT0, type: FP32, shape: [1,2]"]
    assert [
        [*inputs, "requested outputs:", "Y", "Z"],
        [*inputs, "requested outputs:", "Z"],
    ] == described
    head = (
        "[request id: r] prepared: request id: r, model: n, actual version: 3, correlation id: 7, "
        "batch size: 1, priority: 2, timeout (us): 0"
    )
    assert head in [first for first, *_ in lines]


# --------------------------------------------------------------------------- catalogue
# A frontend's knowledge of models beyond what it was told of each.


def news(name: str, **config: Any) -> VersionInfo:
    return VersionInfo(1, name, 1, "READY", None, 1, json.dumps({"name": name, **config}), b"")


def ensemble(name: str, *members: str) -> VersionInfo:
    steps = [{"model_name": member, "model_version": -1} for member in members]
    return news(name, ensemble_scheduling={"step": steps})


def test_a_configuration_is_read_when_it_is_needed_and_an_equal_one_not_again(
    catalogue: Catalogue,
) -> None:
    first = news("m", max_batch_size=2)
    catalogue.update(first)
    [version] = catalogue.newest()
    assert not {"config", "signature"} & vars(version).keys()
    assert 2 == version.signature.max_batch_size

    catalogue.update(first._replace(generation=2, ready_instances=0))
    [later] = catalogue.newest()
    assert version.signature is later.signature
    assert (2, 0) == (later.generation, later.ready_instances)
    catalogue.update(first._replace(config=json.dumps({"name": "m", "max_batch_size": 3})))
    [changed] = catalogue.newest()
    assert 3 == changed.signature.max_batch_size
    catalogue.update(first._replace(config=""))
    [empty] = catalogue.newest()
    assert ({}, 0) == (empty.config, empty.signature.max_batch_size)


@pytest.mark.parametrize(
    ("ability", "config"),
    [
        ("is_hashed", {"response_cache": {"enable": True}}),
        ("has_sequences", {"sequence_batching": {}}),
    ],
)
def test_an_ensemble_can_what_a_member_can_however_deep(
    catalogue: Catalogue, ability: str, config: dict[str, Any]
) -> None:
    for said in (
        ensemble("outer", "plain", "inner"),
        ensemble("inner", "able"),
        ensemble("other", "plain", "unknown", "iterative"),
        news("plain"),
        news("able", **config),
        news("iterative", sequence_batching={"iterative_sequence": True}),
    ):
        catalogue.update(said)

    names = {model.name for model in catalogue.newest() if getattr(model, ability)}

    assert {"outer", "inner", "able"} == names


def test_a_member_that_is_loaded_anew_or_gone_changes_its_ensembles(catalogue: Catalogue) -> None:
    for name in ("e", "other"):
        catalogue.update(ensemble(name, "m"))
    catalogue.update(news("m", response_cache={"enable": True}))
    assert catalogue.find("e").is_hashed

    catalogue.update(news("m"))

    assert not catalogue.find("e").is_hashed
    catalogue.forget("e")
    catalogue.update(news("m", response_cache={"enable": True}))
    assert catalogue.find("other").is_hashed


def test_no_model_is_unknown_while_the_server_waits_for_its_repository(
    catalogue: Catalogue,
) -> None:
    catalogue.apply(RepositoryState(1))

    for ask in (catalogue.find, catalogue.check_counted):
        assert "Server not ready" == refusal(Unavailable, ask, "m")


def test_ensembles_that_name_each_other_are_no_endless_search(catalogue: Catalogue) -> None:
    catalogue.update(ensemble("a", "b"))
    catalogue.update(ensemble("b", "a"))

    assert not catalogue.find("a").is_hashed


@pytest.mark.parametrize("version", ["", "1"])
def test_a_model_that_was_given_up_is_unavailable_and_says_why(
    catalogue: Catalogue, version: str
) -> None:
    text = "instance 'm_0': exited with status 7 (given up after 6 deaths)"
    reason = Reason.of(Kind.GIVEN_UP, text, because("exited with status 7"))
    catalogue.update(news("m"))
    catalogue.update(VersionInfo(0, "m", 1, "UNAVAILABLE", reason, 0, "", b""))

    assert text == refusal(Unavailable, catalogue.find, "m", version)
    assert not catalogue.is_model_ready("m")


@pytest.mark.parametrize("words", ["ValueError", "the store was given up after 6 deaths"])
def test_a_model_that_never_served_has_no_available_versions(
    catalogue: Catalogue, words: str
) -> None:
    reason = because(f"Internal: {words}")
    catalogue.update(VersionInfo(0, "m", 1, "UNAVAILABLE", reason, 0, "", b""))

    with pytest.raises(NotFound, match="'m' has no available versions"):
        catalogue.find("m")


@pytest.mark.parametrize(
    ("state", "reason", "suffix"),
    [
        (
            "UNAVAILABLE",
            because("Internal: no"),
            ". Its last load has failed, and the index of the",
        ),
        ("UNAVAILABLE", Reason.of(Kind.UNLOADED, "unloaded"), ". It was unloaded"),
        ("LOADING", None, ". It is being loaded, so retry later"),
    ],
)
def test_why_a_model_is_not_loaded_stands_behind_triton_s_text(
    catalogue: Catalogue, state: str, reason: Reason | None, suffix: str
) -> None:
    catalogue.update(VersionInfo(0, "m", 1, state, reason, 0, "", b""))

    any_version = refusal(NotFound, catalogue.find, "m")
    first = refusal(Unavailable, catalogue.find, "m", "1")

    text = "Request for unknown model: 'm'"
    assert any_version.startswith(f"{text} has no available versions{suffix}")
    assert first.startswith(f"{text} version 1 is not at ready state{suffix}")


def test_a_misspelt_name_is_guessed_unless_names_are_hidden(catalogue: Catalogue) -> None:
    catalogue.update(news("resnet"))
    text = "Request for unknown model: 'resnt' is not found"

    assert text == refusal(InvalidArgument, catalogue.find, "resnt")

    catalogue.can_name_models = True

    assert f"{text}. Did you mean 'resnet'?" == refusal(InvalidArgument, catalogue.find, "resnt")
    assert "Request for unknown model: 'bert' is not found" == refusal(
        InvalidArgument, catalogue.find, "bert", "1"
    )


def test_among_very_many_models_nothing_is_guessed(catalogue: Catalogue) -> None:
    catalogue.can_name_models = True
    for number in range(51):
        catalogue.update(news(f"model{number}"))

    assert refusal(InvalidArgument, catalogue.find, "modell1").endswith(" is not found")


# ---------------------------------------------------------------------- classification


def model(batch: int = 0, **labels: list[str]) -> ModelVersion:
    config = json.dumps({"name": "m", "max_batch_size": batch})
    return ModelVersion(
        VersionInfo(1, "m", 1, "READY", None, 1, config, b"", labels=json.dumps(labels))
    )


def tensor(values: Any, datatype: str = "FP32") -> Tensor:
    array = np.array(values, BY_NAME[datatype].numpy)
    return Tensor("O", BY_NAME[datatype].number, list(array.shape), array.tobytes())


def classes(of: ModelVersion, output: Tensor, count: int) -> tuple[list[int], list[bytes]]:
    (made,) = classify(of, ResponseBody({}, [output]), {"O": count}).outputs
    assert ("O", BYTES) == (made.name, made.datatype)
    return made.shape, decode_bytes(made.data)


@pytest.mark.row("C55")
def test_the_largest_come_first_with_the_labels_that_there_are() -> None:
    assert ([3], [b"2.000000:2:bird", b"1.000000:0:cat", b"1.000000:1"]) == classes(
        model(O=["cat", "", "bird"]), tensor([1, 1, 2, 0.5]), 3
    )


@pytest.mark.row("C55")
def test_each_row_of_a_batch_has_its_own() -> None:
    shape, texts = classes(model(4), tensor([[1, 2], [4, 3]]), 1)

    assert ([2, 1], [b"2.000000:1", b"4.000000:0"]) == (shape, texts)


@pytest.mark.parametrize("count", [1, 2, 2**63])
def test_nothing_has_no_classes(count: int) -> None:
    assert ([0], []) == classes(model(), tensor([]), count)
    assert ([2, 0], []) == classes(model(4), tensor([[], []]), count)
    assert ([0, 0], []) == classes(model(4), tensor(np.zeros((0, 3))), 0)


@pytest.mark.parametrize("datatype", ["BOOL", "FP16", "BF16", "BYTES"])
@pytest.mark.row("C55")
def test_what_has_no_order_has_no_classes(datatype: str) -> None:
    output = Tensor("O", BY_NAME[datatype].number, [0], b"")

    assert (
        f"class result not available for output due to unsupported type '{datatype}'"
    ) == refusal(InvalidArgument, classes, model(), output, 1)


def test_an_output_of_another_size_than_its_shape_is_an_error() -> None:
    with pytest.raises(InternalError):
        classes(model(), tensor([1, 2])._replace(shape=[3]), 1)


def test_other_outputs_stay_as_they_are() -> None:
    response = ResponseBody({"k": 1}, [tensor([1])])

    assert response == classify(model(), response, {"P": 1})
