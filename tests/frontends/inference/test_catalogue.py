"""A frontend's knowledge of models beyond what it was told of each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.floor.reasons import because
from zmqtriton_floor.errors import InvalidArgument, NotFound, Unavailable
from zmqtriton_floor.reasons import Kind, Reason
from zmqtriton_floor.wire import VersionInfo
from zmqtriton_frontends.inference.catalogue import Catalogue


def news(name: str, **config: Any) -> VersionInfo:
    return VersionInfo(1, name, 1, "READY", None, 1, json.dumps({"name": name, **config}), b"")


def ensemble(name: str, *members: str) -> VersionInfo:
    steps = [{"model_name": member, "model_version": -1} for member in members]
    return news(name, ensemble_scheduling={"step": steps})


def test_a_configuration_is_read_when_it_is_needed_and_an_equal_one_not_again() -> None:
    catalogue = Catalogue()
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


def test_inputs_are_hashed_where_a_member_however_deep_has_a_cache() -> None:
    catalogue = Catalogue()
    for said in (
        ensemble("outer", "plain", "inner"),
        ensemble("inner", "cached"),
        ensemble("other", "plain", "unknown"),
        news("plain"),
        news("cached", response_cache={"enable": True}),
    ):
        catalogue.update(said)

    hashed = {model.name for model in catalogue.newest() if model.is_hashed}

    assert {"outer", "inner", "cached"} == hashed


def test_requests_may_be_parts_of_sequences_where_a_member_s_are() -> None:
    catalogue = Catalogue()
    for said in (
        ensemble("outer", "plain", "inner"),
        ensemble("inner", "sequences"),
        ensemble("other", "plain", "iterative"),
        news("plain"),
        news("sequences", sequence_batching={}),
        news("iterative", sequence_batching={"iterative_sequence": True}),
    ):
        catalogue.update(said)

    names = {model.name for model in catalogue.newest() if model.has_sequences}

    assert {"outer", "inner", "sequences"} == names


def test_a_member_that_is_loaded_anew_or_gone_changes_its_ensembles() -> None:
    catalogue = Catalogue()
    catalogue.update(ensemble("e", "m"))
    catalogue.update(news("m", response_cache={"enable": True}))
    assert catalogue.find("e").is_hashed

    catalogue.update(news("m"))

    assert not catalogue.find("e").is_hashed
    catalogue.forget("e")
    catalogue.update(news("m", response_cache={"enable": True}))


def test_ensembles_that_name_each_other_are_no_endless_search() -> None:
    catalogue = Catalogue()

    catalogue.update(ensemble("a", "b"))
    catalogue.update(ensemble("b", "a"))

    assert not catalogue.find("a").is_hashed


@pytest.mark.parametrize("version", ["", "1"])
def test_a_model_that_was_given_up_is_unavailable_and_says_why(version: str) -> None:
    catalogue = Catalogue()
    text = "instance 'm_0': exited with status 7 (given up after 6 deaths)"
    reason = Reason.of(Kind.GIVEN_UP, text, because("exited with status 7"))
    catalogue.update(news("m"))
    catalogue.update(VersionInfo(0, "m", 1, "UNAVAILABLE", reason, 0, "", b""))

    with pytest.raises(Unavailable) as refused:
        catalogue.find("m", version)

    assert text == refused.value.text
    assert not catalogue.is_model_ready("m")


@pytest.mark.parametrize("words", ["ValueError", "the store was given up after 6 deaths"])
def test_a_model_that_never_served_has_no_available_versions(words: str) -> None:
    catalogue = Catalogue()
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
    state: str, reason: Reason | None, suffix: str
) -> None:
    catalogue = Catalogue()
    catalogue.update(VersionInfo(0, "m", 1, state, reason, 0, "", b""))

    with pytest.raises(NotFound) as any_version:
        catalogue.find("m")
    with pytest.raises(Unavailable) as first:
        catalogue.find("m", "1")

    text = "Request for unknown model: 'm'"
    assert any_version.value.text.startswith(f"{text} has no available versions{suffix}")
    assert first.value.text.startswith(f"{text} version 1 is not at ready state{suffix}")


def test_a_misspelt_name_is_guessed_unless_names_are_hidden() -> None:
    catalogue = Catalogue()
    catalogue.update(news("resnet"))
    text = "Request for unknown model: 'resnt' is not found"

    with pytest.raises(InvalidArgument) as hidden:
        catalogue.find("resnt")
    catalogue.can_name_models = True
    with pytest.raises(InvalidArgument) as guessed:
        catalogue.find("resnt")
    with pytest.raises(InvalidArgument) as other:
        catalogue.find("bert", "1")

    assert text == hidden.value.text
    assert f"{text}. Did you mean 'resnet'?" == guessed.value.text
    assert "Request for unknown model: 'bert' is not found" == other.value.text


def test_among_very_many_models_nothing_is_guessed() -> None:
    catalogue = Catalogue()
    catalogue.can_name_models = True
    for number in range(51):
        catalogue.update(news(f"model{number}"))

    with pytest.raises(InvalidArgument) as refused:
        catalogue.find("modell1")

    assert refused.value.text.endswith(" is not found")
