"""A request's answer depends on the request and on what is served, and on nothing else.

Not on the way that leads to the model, and not on what was asked before: by the same client, on the
same connection, with a head that is nearly the same. The contents are generated: each of cases.py
differs from a plain request in one thing.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.server import Server
from tests.support.waiting import eventually
from tests.system.ways import repository
from tests.system.ways.cases import CASES
from tests.system.ways.contents import PLAIN, Content, Input, Outcome
from tests.system.ways.ways import (
    AUTHORIZATION,
    TOKEN,
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
from zmqtriton_floor import token_file
from zmqtriton_floor.token_file import ALL_MODELS, Grant

HTTP = (HttpWay, JsonWay, ChunkedWay, PackedWay)
GRPC = (GrpcWay, PackedGrpcWay)
WAYS: tuple[type[Way], ...] = (*HTTP, *GRPC, StreamWay, DoorWay, GuestWay, BlsWay)
NAMES = tuple(way.name for way in WAYS)
pytestmark = [
    pytest.mark.system,
    pytest.mark.large_tensors,
    pytest.mark.server(
        models=repository.MODELS,
        options=(
            "--zmq-door",
            "--runtime-directory=@DIRECTORY@/r",
            "--cache-config=local,size=1048576",
            "--model-control-mode=explicit",
            *(f"--load-model={n}" for n in repository.LOADED),
            "--tokens=@DIRECTORY@/tokens",
            "--trace-config=triton,file=@DIRECTORY@/trace.json",
        ),
        frontends=("grpc",),
    ),
]
#: Good for other models.
OTHERS = "zmqt_a-token-of-others-0123456789"


def prepare(server: Server) -> None:
    repository.prepare(server)
    write_tokens(server, TOKEN)


def write_tokens(server: Server, *good: str) -> None:
    """Write which tokens are good for all models; the rest is for others than are asked."""
    lines: list[str] = []
    for token in (TOKEN, OTHERS):
        models = ALL_MODELS if token in good else ("others",)
        scopes = token_file.parse_scopes("infer,control")
        name = f"token{len(lines)}"
        lines.append(Grant(name, token_file.Grant.digest_of(token), scopes, models).line() + "\n")
    path = server.directory.parent / "tokens.new"
    path.write_text("".join(lines))
    path.chmod(0o600)
    path.replace(path.with_name("tokens"))


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
    # the words of a JSON document's error name the type that may be meant
    "wrong tensors: an unknown type": [
        *_NO_TYPE,
        Known(("door",), 400, "invalid datatype for input FLOATS"),
    ],
    # numpy's arrays become those of the model where no value changes its kind
    "wrong tensors: another type": [Known(("guest",), 200, "")],
    "wrong tensors: another type of another size": [Known(("guest",), 200, "")],
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
    # clients of the network need tokens, and read no names of models that they may not ask
    "targets: a name like a model's": [
        *_NOT_READY,
        Known(("door", "guest"), 400, "Did you mean 'mirror'?"),
    ],
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
    differences = {way: one for one in KNOWN.get(name, ()) for way in one.ways}
    for way, outcome in outcomes.items():
        difference, meant = expected.differs(outcome), differences.get(way)
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


# ------------------------------------------------- the same, whatever was before


#: Each may be the request before, and the one after. Many differ in nothing but bytes of the body,
#: so that their heads are equal.
NEIGHBOURS: Mapping[str, Content] = {
    "plain": PLAIN,
    **{
        name.partition(": ")[2]: CASES[name]
        for name in (
            "tensors: other values",
            "tensors: another shape",
            "tensors: large",
            "tensors: none",
            "wrong tensors: another type",
            "wishes: another id",
            "wishes: two outputs",
            "wishes: one",
            "wishes: true",
            "wishes: a float",
            "wishes: a timeout",
            "wishes: a failure",
            "targets: version 1",
            "targets: an unknown model",
            "targets: an ensemble",
        )
    },
    "a deadline": PLAIN._replace(within_s=60),
    "another deadline": PLAIN._replace(within_s=90),
    "a token for others": PLAIN._replace(headers=(("Authorization", f"Bearer {OTHERS}"),)),
    "a header that means nothing": PLAIN._replace(headers=(("X-Nothing", "1"),)),
}


def walk(names: Sequence[str]) -> list[str]:
    """Return the shortest sequence in which each is followed by each, itself included."""
    steps: list[str] = []
    for index, name in enumerate(names):
        steps.append(name)
        for other in names[index + 1 :]:
            steps += [name, other]
    return [*steps, names[0]]


def wrong_deadline(content: Content, outcome: Outcome, asked_ns: int) -> str:
    """Return what is wrong with the deadline that the model was told."""
    if outcome.status != 200 or "SEEN" not in outcome.outputs:
        return ""
    if not content.within_s:
        return "a deadline that nobody said" if outcome.deadline_ns else ""
    within_ns = content.within_s * 1_000_000_000
    # a client of gRPC tells it rounded up, to a second for the longest
    earliest, latest = asked_ns + within_ns, time.monotonic_ns() + within_ns + 10**9
    return "" if earliest <= outcome.deadline_ns <= latest else "the deadline of another request"


def on_its_own(server: Server, way: type[Way], contents: Iterable[Content]) -> list[Outcome]:
    """Return the outcome of each on a connection of its own, but for processes that join."""
    if way is GuestWay:
        with way(server) as only:
            return [only.ask(content) for content in contents]
    outcomes = []
    for content in contents:
        with way(server) as fresh:
            outcomes.append(fresh.ask(content))
    return outcomes


def test_a_walk_of_two_passes_each_pair_once() -> None:
    steps = walk("abcd")

    assert 16 == len(set(pairwise(steps))) == len(steps) - 1


@pytest.mark.row("L18")
@pytest.mark.long("system/ways/test_ways.py::test_all_ways_lead_to_the_same_outcome")
@pytest.mark.parametrize("way", WAYS, ids=NAMES)
def test_what_was_asked_before_on_a_connection_makes_no_difference(
    server: Server, way: type[Way]
) -> None:
    problems = []
    with way(server) as kept:
        sayable = {name: one for name, one in NEIGHBOURS.items() if kept.can_say(one)}
        expected = dict(zip(sayable, on_its_own(server, way, sayable.values()), strict=True))
        before = "nothing"
        for name in walk(list(sayable)):
            asked_ns = time.monotonic_ns()
            outcome = kept.ask(sayable[name])
            wrong = expected[name].differs(outcome)
            wrong = wrong or wrong_deadline(sayable[name], outcome, asked_ns)
            problems += [f"{name} after {before}: {wrong}"] if wrong else []
            before = name

    assert [] == problems
    assert len(sayable) > 12


# --------------------------------------------- the same, though the world changes


def call(server: Server, path: str, document: Any) -> Any:
    """Ask for something that a token is needed for."""
    answer = server.exchange(path, json.dumps(document).encode(), dict([AUTHORIZATION]))
    assert 200 == answer.status, answer.body
    return answer.document


def load(server: Server) -> None:
    call(server, "/v2/repository/models/mirror/load", {})


def change_code(server: Server) -> None:
    repository.write_edition(server, 2, version=2)
    load(server)


def serve_version_1(server: Server) -> None:
    server.edit_config(
        "mirror", "version_policy { all {} }", "version_policy { specific { versions: 1 } }"
    )
    load(server)


def serve_all_versions(server: Server) -> None:
    server.edit_config(
        "mirror", "version_policy { specific { versions: 1 } }", "version_policy { all {} }"
    )
    load(server)


def drop_an_output(server: Server) -> None:
    server.edit_config("mirror", repository.LAST_OUTPUTS, repository.LAST_OUTPUT)
    load(server)


def restore_the_output(server: Server) -> None:
    server.edit_config("mirror", repository.LAST_OUTPUT, repository.LAST_OUTPUTS)
    load(server)


def unload(server: Server) -> None:
    call(server, "/v2/repository/models/mirror/unload", {})


def try_another(server: Server) -> None:
    repository.write_edition(server, 3, version=3)
    call(server, "/v2/models/mirror/canary", {"version": 3, "weight": "100%"})


def end_the_trial(server: Server) -> None:
    call(server, "/v2/models/mirror/canary/abort", {})


def kill_the_broker(server: Server) -> None:
    server.replace_only("broker")


def kill_the_instance(server: Server) -> None:
    before = server.stub_pids("mirror")
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not set(before) & set(server.stub_pids("mirror")), 30, "their end")


def log_more(server: Server) -> None:
    call(server, "/v2/logging", {"log_verbose_level": 1})


def trace_all(server: Server) -> None:
    call(server, "/v2/trace/setting", {"trace_level": ["TIMESTAMPS"], "trace_rate": "1"})


def revoke(server: Server) -> None:
    write_tokens(server)


def grant(server: Server) -> None:
    write_tokens(server, TOKEN)


def memory(server: Server, size: int, first: int) -> Input:
    """Register memory under the same name as before."""
    path = Path(f"/dev/shm/zmqtriton_ways_{os.getpid()}_{size}_{first}")
    path.write_bytes(struct.pack(f"<{size}f", *range(first, first + size)))
    with suppress(AssertionError):
        call(server, "/v2/systemsharedmemory/region/ways/unregister", {})
    call(
        server,
        "/v2/systemsharedmemory/region/ways/register",
        {"key": f"/{path.name}", "offset": 0, "byte_size": 4 * size},
    )
    path.unlink()
    return Input("FLOATS", "FP32", (2,), bytes(8), region="ways")


def register(server: Server) -> None:
    memory(server, size=2, first=1)


def register_anew(server: Server) -> None:
    memory(server, size=20_000, first=5)


def unregister(server: Server) -> None:
    call(server, "/v2/systemsharedmemory/region/ways/unregister", {})


class Change(NamedTuple):
    """A change of what is served, and whether the same request has another outcome then."""

    make: Callable[[Server], None]
    shows: bool
    content: Content = PLAIN
    #: Those that it shows on; all if it does on any.
    ways: tuple[type[Way], ...] = WAYS


_OF_REGION = PLAIN._replace(inputs=(Input("FLOATS", "FP32", (2,), bytes(8), region="ways"),))
_WITH_TOKENS = (*HTTP, *GRPC)
#: Each begins where the one before has ended.
CHANGES = (
    Change(change_code, shows=True),
    Change(serve_version_1, shows=True),
    Change(serve_all_versions, shows=True),
    Change(drop_an_output, shows=True),
    Change(restore_the_output, shows=True),
    Change(unload, shows=True),
    Change(load, shows=True),
    Change(try_another, shows=True),
    Change(kill_the_broker, shows=False),
    Change(end_the_trial, shows=True),
    Change(kill_the_instance, shows=False),
    Change(log_more, shows=False),
    Change(trace_all, shows=False),
    Change(register, shows=True, content=_OF_REGION),
    Change(register_anew, shows=True, content=_OF_REGION),
    Change(kill_the_broker, shows=False, content=_OF_REGION),
    Change(unregister, shows=True, content=_OF_REGION),
    Change(revoke, shows=True, ways=_WITH_TOKENS),
    Change(grant, shows=True, ways=_WITH_TOKENS),
)


@pytest.mark.long(
    "system/protocols/test_tokens.py::test_a_token_that_is_removed_opens_nothing_more_even_on_an_open_connection",
    "system/loads/test_reloads.py::test_a_load_runs_what_the_files_have_however_soon_after_the_last",
)
def test_what_changes_counts_on_connections_that_there_were_before(server: Server) -> None:
    problems = []
    for number, (make, shows, content, ways) in enumerate(CHANGES):
        with ExitStack() as stack:
            kept = [stack.enter_context(way(server)) for way in ways]
            kept = [way for way in kept if way.can_say(content)]
            before = [way.ask(content) for way in kept]
            make(server)
            answered: Outcome | None = None
            for way, earlier in zip(kept, before, strict=True):
                what = f"{number}, {make.__name__}, {way.name}"
                later = eventually_asked(way, content, earlier, shows=shows)
                [own] = on_its_own(server, type(way), [content])
                problems += [f"{what}: {fault}" for fault in [own.differs(later)] if fault]
                answered = answered or later
                if answered.status == later.status == 200 and answered.differs(later):
                    problems.append(f"{what}: {answered.differs(later)}")
                if bool(earlier.differs(later)) != shows:
                    problems.append(f"{what}: {earlier} became {later}")

    assert [] == problems


def eventually_asked(way: Way, content: Content, earlier: Outcome, *, shows: bool) -> Outcome:
    """Ask when the change has come to every process, as far as that shows."""
    outcomes: list[Outcome] = []

    def ask() -> bool:
        outcomes.append(way.ask(content))
        return not shows or bool(earlier.differs(outcomes[-1]))

    with suppress(AssertionError):
        eventually(ask, 30)
    return outcomes[-1]
