"""Which sequences of one client are open, from what it asks."""

from __future__ import annotations

import json

import pytest

from zmqtriton_floor import wire
from zmqtriton_floor.wire import SEQUENCE_END, SEQUENCE_START
from zmqtriton_frontends.inference import open_sequences
from zmqtriton_frontends.inference.admission import CheckedRequest, Options, prepare
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_frontends.inference.open_sequences import OpenSequences


def request(correlation: int | str, flags: int = 0, *, model: str = "s") -> CheckedRequest:
    catalogue = Catalogue()
    for name, kind in (("s", "sequence_batching"), ("plain", "dynamic_batching")):
        config = json.dumps({"name": name, "max_batch_size": 0, kind: {}})
        catalogue.update(wire.VersionInfo(1, name, 1, "READY", None, 1, config, b""))
    body = wire.RequestBody("", {}, [], [])
    return prepare(catalogue, catalogue.find(model), body, Options(flags, correlation=correlation))


@pytest.mark.row("E78")
def test_a_sequence_is_open_from_its_first_request_to_its_last() -> None:
    ends: list[bool] = []
    sequences = OpenSequences(lambda: ends.append(bool(sequences)))
    assert not sequences

    for each in (request(1, SEQUENCE_START), request("two", SEQUENCE_START), request(1)):
        sequences.note(each)
        assert sequences
    sequences.note(request("two", SEQUENCE_END))
    assert (True, []) == (bool(sequences), ends)
    sequences.note(request(1, SEQUENCE_END))

    assert (False, [False]) == (bool(sequences), ends)


def test_requests_of_no_sequence_open_none() -> None:
    sequences = OpenSequences()

    sequences.note(request(0))
    sequences.note(request(7, SEQUENCE_START, model="plain"))
    sequences.note(request(8, SEQUENCE_START | SEQUENCE_END))

    assert not sequences


def test_who_ends_no_sequence_fills_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_sequences, "_MAX_NOTED", 2)
    sequences = OpenSequences()

    for correlation in (1, 2, 3):
        sequences.note(request(correlation, SEQUENCE_START))
    for correlation in (1, 2):
        sequences.note(request(correlation, SEQUENCE_END))

    assert not sequences
