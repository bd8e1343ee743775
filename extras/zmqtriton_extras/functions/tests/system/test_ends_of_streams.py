"""What befalls a model with many open streams: each ends once, with all of its text or an error."""

from __future__ import annotations

import http.client
import json
import os
import queue
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pytest
import tritonclient.grpc as grpc_client

from tests.standard.ctl.system.commands import ctl
from tests.support.scripted import string_parameter
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_extras.functions.tests.system.many_streams import Journal, kill

pytestmark = pytest.mark.system

KINDS = ("processes", "forks", "threads")
#: Streams of each protocol, and pieces of each stream.
MANY, PIECES = 6, 60
_WITHIN_S = 240
_TWO = "instance_group { count: 2 kind: KIND_CPU }\n"


class Ending(NamedTuple):
    """What a client has got of its stream."""

    name: str
    texts: list[str]
    #: "" if all of it has come.
    error: str

    def check(self) -> None:
        assert {self.name} >= {text.split()[0] for text in self.texts}
        steps = [int(text.split()[1]) for text in self.texts]
        assert steps == sorted(set(steps)), "none twice, and none out of order"
        assert len(steps) == PIECES or self.error, "it is cut without a word"


def read_events(server: Server, model: str, name: str) -> Ending:
    """Read a stream over HTTP to its end, or to that of its connection."""
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=_WITHIN_S)
    text, error = b"", ""
    with closing(connection):
        body = json.dumps({"name": name, "pieces": PIECES})
        try:
            connection.request("POST", f"/v2/models/{model}/generate_stream", body)
            answer = connection.getresponse()
            while part := answer.read1():  # unlike readline(), it tells a torn connection
                text += part
        except (OSError, http.client.HTTPException) as lost:
            error = f"lost: {lost!r}"
    lines = [line for line in text.decode().splitlines() if line.startswith(("data: ", "{"))]
    documents = [json.loads(line.removeprefix("data: ")) for line in lines]
    errors = [each["error"] for each in documents if "error" in each]
    assert errors == [each["error"] for each in documents[-1:] if "error" in each], "one end"
    return Ending(name, [e["output"] for e in documents if "output" in e], "".join(errors) or error)


def read_grpc(server: Server, model: str, name: str) -> Ending:
    """The same over a gRPC stream."""
    answers: queue.Queue[Any] = queue.Queue()
    arrays = {"name": np.array([name], object), "pieces": np.array([PIECES], np.int64)}
    inputs = []
    for key, array in arrays.items():
        datatype = "INT64" if key == "pieces" else "BYTES"
        inputs.append(grpc_client.InferInput(key, [1], datatype).set_data_from_numpy(array))
    texts, failure, is_over = [], "", False
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer(model, inputs, enable_empty_final_response=True)
        while not is_over and not failure:
            result, error = answers.get(timeout=_WITHIN_S)
            if error is not None:
                is_lost = error.status() is not None and "UNAVAILABLE" in error.status()
                failure = f"lost: {error}" if is_lost else error.message()
                continue
            response = result.get_response()
            if response.outputs:
                texts.append(result.as_numpy("output")[0].decode())
            is_over = response.parameters["triton_final_response"].bool_param
        client.stop_stream()
    assert answers.empty(), "it ends once"
    return Ending(name, texts, failure)


Asked = dict[str, Future[Ending]]


class World:
    """A server with a model of each kind of instances, two of each, and its clients."""

    def __init__(self, directory: Path) -> None:
        options = (
            "--model-control-mode=explicit",
            "--load-model=*",
            f"--runtime-directory={directory}/run",
            "--http-workers=1",
        )
        self.server = Server(directory / "server", options=options, frontends=("grpc",))
        self.journals = {kind: Journal(directory / kind) for kind in KINDS}
        self.threads = ThreadPoolExecutor(4 * MANY)
        directory.chmod(0o777)
        for kind, journal in self.journals.items():
            source = journal.source().replace("Count", kind.title())
            self.server.write_model(kind, _TWO + string_parameter("INSTANCES", kind), source)

    def ask(self, model: str, tag: str = "n") -> Asked:
        return {
            f"{tag}-{way.__name__}-{number}": self.threads.submit(
                way, self.server, model, f"{tag}-{way.__name__}-{number}"
            )
            for number in range(MANY)
            for way in (read_events, read_grpc)
        }

    @contextmanager
    def held(self, model: str) -> Iterator[Asked]:
        """Streams whose steps last until the block ends."""
        journal = self.journals[model]
        journal.clear()
        (journal.place / "idle").touch()
        asked = self.ask(model)
        try:
            journal.hold_instances({*asked})
            yield asked
        finally:
            journal.free()
            for answer in asked.values():
                answer.exception(_WITHIN_S)

    def check(self, model: str, asked: Asked) -> dict[str, Ending]:
        """Check that each has ended once and has left its instance; return those that failed."""
        endings = {name: answer.result(_WITHIN_S) for name, answer in asked.items()}
        for ending in endings.values():
            ending.check()
        journal = self.journals[model]

        def have_left() -> bool:
            rows = [row for row in journal.rows() if psutil.pid_exists(row["pid"])]
            admitted = sorted(row["admitted"] for row in rows if "admitted" in row)
            return admitted == sorted(row["left"] for row in rows if "left" in row)

        eventually(have_left, 60, "each has left once")
        return {name: ending for name, ending in endings.items() if ending.error}

    def check_again(self, model: str) -> None:
        """Check that the model serves as before."""
        assert {} == self.check(model, self.ask(model, "again"))

    def names_in(self, model: str, pid: int) -> set[str]:
        """Return the streams that a process has admitted and that have not left it."""
        rows = [row for row in self.journals[model].rows() if row["pid"] == pid]
        return {r["admitted"] for r in rows if "admitted" in r} - {r.get("left") for r in rows}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("ends"))
    with world.server:
        yield world
        log = world.server.log_text()
    world.threads.shutdown()
    assert "Traceback" not in log, log


def run(world: World, *words: str) -> None:
    result = ctl(world.server, *words)
    assert result.exit_code == 0, result.output


# ------------------------------------------------- what harms no stream at all


def reload(world: World, model: str) -> None:
    file = world.server.repository / model / "1" / "model.py"
    file.write_text(file.read_text() + "\n")
    assert not world.server.control_model("load", model)


def scale(world: World, model: str) -> None:
    run(world, "scale", model, "1")
    run(world, "scale", model, "2")


def unload(world: World, model: str) -> None:
    assert not world.server.control_model("unload", model)
    assert not world.server.control_model("load", model)


def sleep(world: World, model: str) -> None:
    """It does not sleep, since it has requests."""
    ctl(world.server, "sleep", model)
    assert not world.journals[model].has(rests="sleep")


def promote(world: World, model: str) -> None:
    """Another version gets all requests, and the streams of this one end there."""
    add_version(world, model)
    run(world, "canary", "start", model, "2", "--weight", "10")
    run(world, "canary", "promote", model)


def add_version(world: World, model: str) -> None:
    directory = world.server.repository / model
    shutil.rmtree(directory / "2", ignore_errors=True)
    shutil.copytree(directory / "1", directory / "2")
    file = directory / "2" / "model.py"
    file.write_text(file.read_text().replace('WORD = "old"', 'WORD = "new"'))


@contextmanager
def restored(world: World, model: str) -> Iterator[None]:
    """Have the old version alone at the end."""
    try:
        yield
    finally:
        shutil.rmtree(world.server.repository / model / "2", ignore_errors=True)
        assert not world.server.control_model("load", model)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steer", [reload, scale, unload, sleep])
def test_streams_go_on_to_their_ends_while_the_model_is_steered(
    world: World, steer: Callable[[World, str], None], kind: str
) -> None:
    with world.held(kind) as asked:
        steer(world, kind)

    assert {} == world.check(kind, asked)
    world.check_again(kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("instance", ["", "{}_0_0"], ids=["model", "instance"])
def test_a_drain_lets_streams_end_before_it_restarts(
    world: World, kind: str, instance: str
) -> None:
    wish = {"then": "restart", "wait": False}
    if instance:
        wish["instance"] = instance.format(kind)
    with world.held(kind) as asked:
        pids = {row["pid"] for row in world.journals[kind].rows()}
        status, drain = world.server.request_json(f"/v2/models/{kind}/drain", wish)
        assert (200, "draining") == (status, drain["state"])

    assert {} == world.check(kind, asked)
    if kind != "threads":  # whose process stays
        gone = 1 if instance else len(pids)
        eventually(lambda: gone == sum(not psutil.pid_exists(pid) for pid in pids), 60, "restart")
    world.check_again(kind)


def test_streams_of_the_stable_version_end_though_a_canary_is_promoted(world: World) -> None:
    model = "processes"
    with restored(world, model):
        with world.held(model) as asked:
            promote(world, model)
            later = world.ask(model, "later")
        assert {} == world.check(model, {**asked, **later})
        assert {"new"} == {text.split()[2] for f in later.values() for text in f.result().texts}
        assert {"old"} == {text.split()[2] for f in asked.values() for text in f.result().texts}


def test_streams_of_a_canary_that_is_aborted_end_in_their_time(world: World) -> None:
    model = "processes"
    with restored(world, model):
        add_version(world, model)
        options = ("--weight", "50", "--abort-within", "off", "--abort-hang", "off")
        run(world, "canary", "start", model, "2", *options)
        with world.held(model) as asked:
            run(world, "canary", "abort", model)
        assert {} == world.check(model, asked)
        world.check_again(model)


def test_streams_of_a_canary_that_outlive_its_abort_end_with_an_error(world: World) -> None:
    model = "processes"
    with restored(world, model):
        add_version(world, model)
        options = ("--weight", "50", "--abort-within", "1s", "--abort-hang", "off")
        run(world, "canary", "start", model, "2", *options)
        before = {*world.server.stub_pids(model)}
        with world.held(model) as asked:
            streams = {pid: world.names_in(model, pid) for pid in before}
            run(world, "canary", "abort", model)
            eventually(lambda: len({*world.server.stub_pids(model)} & before) < len(before), 60)
            eventually(lambda: len(world.server.stub_pids(model)) == 2, 60, "the canary's end")
        ended = before - {*world.server.stub_pids(model)}
        assert {name for pid in ended for name in streams[pid]} == {*world.check(model, asked)}
        world.check_again(model)


# ---------------------------------------------------------------- what does harm


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_ends_the_streams_of_its_process_alone(world: World, kind: str) -> None:
    with world.held(kind) as asked:
        pid = next(row["pid"] for row in world.journals[kind].rows() if "held" in row)
        streams = world.names_in(kind, pid)
        kill(pid)
        eventually(lambda: not psutil.pid_exists(pid), 60, "its end")

    failed = world.check(kind, asked)
    assert streams == {*failed}
    assert all("is not healthy" in ending.error for ending in failed.values())
    world.check_again(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_restart_ends_streams_with_an_error(world: World, kind: str) -> None:
    with world.held(kind) as asked, ThreadPoolExecutor(1) as threads:
        restarted = threads.submit(run, world, "restart", kind)
        restarted.result(_WITHIN_S)
        failed = world.check(kind, asked)

    assert {*asked} == {*failed}
    world.check_again(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_broker_that_is_killed_ends_each_stream_once(world: World, kind: str) -> None:
    with world.held(kind) as asked:
        world.server.replace_only("broker")

    world.check(kind, asked)
    eventually(world.server.is_ready, 60, "another broker")
    world.check_again(kind)


@pytest.mark.parametrize(("role", "way"), [("http", read_events), ("grpc", read_grpc)])
def test_a_frontend_that_is_killed_costs_its_own_clients_their_streams(
    world: World, role: str, way: Callable[..., Ending]
) -> None:
    model = "processes"
    with world.held(model) as asked:
        for pid in world.server.pids()[role]:
            os.kill(pid, 9)
        others = {name: answer for name, answer in asked.items() if way.__name__ not in name}
    failed = world.check(model, asked)

    assert {*asked} - {*others} == {*failed}
    assert all(ending.error.startswith("lost") for ending in failed.values())
    eventually(world.server.is_ready, 60, "another frontend")
    world.check_again(model)


def test_a_model_sleeps_once_its_streams_have_left_and_a_stream_wakes_it(world: World) -> None:
    model, journal = "processes", world.journals["processes"]
    journal.clear()
    world.check_again(model)
    run(world, "sleep", model)
    eventually(lambda: [row.get("rests") for row in journal.rows()].count("sleep") == 2, 60)
    world.check_again(model)

    kinds = [row["rests"] for row in journal.rows() if "rests" in row]
    assert {"wake_up"} == {*kinds[2:]}
    rows = [row for row in journal.rows() if not {"left", "rests", "admitted"}.isdisjoint(row)]
    place = next(number for number, row in enumerate(rows) if "rests" in row)
    assert sum("left" in row for row in rows[:place]) == 2 * MANY
