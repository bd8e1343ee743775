"""A request's answer depends on the request and on what is served, and on nothing else.

Not on the way that leads to the model, and not on what was asked before: by the same client, on the
same connection, with a head that is nearly the same. The contents are generated: each of cases.py
differs from a plain request in one thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from tests.support.server import Server
from tests.system.ways import repository
from tests.system.ways.cases import CASES
from tests.system.ways.contents import Outcome
from tests.system.ways.ways import (
    BlsWay,
    ChunkedWay,
    DoorWay,
    GrpcWay,
    GuestWay,
    HttpWay,
    JsonWay,
    PackedGrpcWay,
    PackedWay,
    StreamWay,
    Way,
)

pytestmark = pytest.mark.system

HTTP = (HttpWay, JsonWay, ChunkedWay, PackedWay)
GRPC = (GrpcWay, PackedGrpcWay)
WAYS: tuple[type[Way], ...] = (*HTTP, *GRPC, StreamWay, DoorWay, GuestWay, BlsWay)
NAMES = tuple(way.name for way in WAYS)
OPTIONS = (
    *("--zmq-door", "--runtime-directory=@DIRECTORY@/r", "--cache-config=local,size=1048576"),
    *("--model-control-mode=explicit", *(f"--load-model={n}" for n in repository.LOADED)),
)
MODELS = repository.MODELS


def prepare(server: Server) -> None:
    repository.prepare(server)


# --------------------------------------------------------- the same on all ways


class Known(NamedTuple):
    """A difference between ways that is meant."""

    ways: tuple[str, ...]
    status: int
    #: A part of the error; "" for a success.
    error: str


_GRPC = ("grpc", "packed grpc")
_NO_TYPE = [Known((*_GRPC, "stream"), 400, "data-type is '<invalid>'")]
#: What models hear of models that are not there, as in Triton.
_NOT_READY = [Known(("bls",), 503, "Failed for execute the inference request. Model '")]
#: By case; the rest answers as HTTP does.
KNOWN: Mapping[str, list[Known]] = {
    "wrong tensors: an unknown type": _NO_TYPE,
    "wrong tensors: a type in small letters": _NO_TYPE,
    "wrong tensors: no type": _NO_TYPE,
    # a set, as in Triton
    "wishes: an output twice": [Known(("bls",), 200, "")],
    # models are no clients
    "wishes: a long name": [Known(("bls",), 200, "")],
    "wishes: a reserved name": [
        Known((*_GRPC, "stream"), 400, "Only the following keys starting with 'triton_' are"),
        Known(("guest", "bls"), 200, ""),
    ],
    "wishes: a name that is too long for a sequence": [Known(("bls",), 200, "")],
    "targets: version 3": _NOT_READY,
    "targets: version 0": _NOT_READY,
    # HTTP has no such path
    "targets: a version that is no number": [
        Known((*_GRPC, "stream", "door", "guest"), 400, "failed to get model version from"),
    ],
    "targets: an unknown model": _NOT_READY,
    "targets: an unknown version of an unknown model": _NOT_READY,
    "targets: a name like a model's": _NOT_READY,
    "targets: a model that is not loaded": _NOT_READY,
    "targets: its version": _NOT_READY,
    # some ways have one answer only
    "targets: a decoupled model": [
        Known(_GRPC, 501, "ModelInfer RPC doesn't support models with decoupled"),
        Known(("bls",), 501, "BLS request call doesn't support models using the decoupled"),
        Known(("stream", "door", "guest"), 200, ""),
    ],
}


@pytest.fixture(scope="module")
def ways(server: Server) -> Iterator[list[Way]]:
    with ExitStack() as stack:
        yield [stack.enter_context(way(server)) for way in WAYS]


def problems_of(name: str, outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    """Iterate over what differs between ways though it should not, or is known and does not."""
    expected = outcomes["http"]
    known = {way: found for found in KNOWN.get(name, ()) for way in found.ways}
    for way, outcome in outcomes.items():
        difference, meant = expected.differs(outcome), known.get(way)
        if meant is None:
            if difference:
                yield f"{name}, {way}: {difference}"
        elif not difference:
            yield f"{name}, {way}: known to differ, and does not"
        elif outcome.status not in (None, meant.status) or meant.error not in outcome.error:
            yield f"{name}, {way}: known to differ, but as {outcome}"


def test_all_ways_lead_to_the_same_outcome(
    ways: list[Way], record_testsuite_property: Callable[[str, object], None]
) -> None:
    problems: list[str] = []
    count = 0
    for name, content in CASES.items():
        outcomes = {way.name: way.ask(content) for way in ways if way.can_say(content)}
        count += len(outcomes)
        problems += problems_of(name, outcomes)

    assert [] == problems
    record_testsuite_property("requests by all ways", count)
    assert set(KNOWN) <= set(CASES)
    assert len(CASES) * len(ways) * 0.8 < count, "most ways say most of them"
