"""The door as a client meets it that has no line of ours: verbs, errors, streams, deaths."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from tests.support.journal import (
    executions,
    has_seen_cancellation,
    read_journal,
    release_execution,
)
from tests.support.server import ROOT, Server
from tests.support.waiting import eventually
from zmqtriton import control_client as ctl
from zmqtriton_extras.door.tests.raw_door import RawDoor, floats, held, tokens

FRONTENDS = ()

MIB = 1 << 20
LIMIT = 128 * MIB
_LOADED = ("identity_fp32", "tokens", "journal", "add_sub")
_KEYS = {"keys": {"admin": "secret"}}
pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=(*_LOADED, "doubled"),
        options=(
            "--zmq-door",
            f"--zmq-door-group={os.getgid()}",
            "--zmq-door-restricted=model-repository:admin=secret",
            "--runtime-directory=@DIRECTORY@/r",
            "--model-control-mode=explicit",
            *(f"--load-model={name}" for name in _LOADED),
            f"--client-memory-byte-size={LIMIT}",
        ),
        frontends=FRONTENDS,
    ),
]


def path_of(server: Server) -> str:
    return f"{server.directory.parent}/r/door"


@pytest.fixture(scope="module")
def server(running: Server) -> Server:
    with RawDoor(path_of(running)) as client:  # what is opened at first use is no leak
        client.ask("infer", floats("identity_fp32", 1), bytes(4))
    return running


@pytest.fixture
def door(server: Server) -> Iterator[RawDoor]:
    with RawDoor(path_of(server)) as client:
        yield client


def door_pid(server: Server) -> int:
    [pid] = server.pids()["door"]
    return pid


def await_execution(server: Server, name: str) -> None:
    eventually(lambda: name in executions(server.journal), 30, "the execution to begin")


# ---------------------------------------------------------------------- verbs


def test_an_inference_is_answered_with_its_tensors(door: RawDoor) -> None:
    data = struct.pack("<3f", 1, 2, 3)

    kind, fields, frames = door.ask("infer", floats("identity_fp32", 3, request_id="mine"), data)

    assert kind == "response"
    assert fields == {
        "model": "identity_fp32",
        "version": 1,
        "request_id": "mine",
        "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [3]}],
        "final": True,
    }
    assert [data] == frames


@pytest.mark.parametrize("count", [0, 4096, 4097, 150_528, 4 * MIB])
def test_tensors_of_all_sizes_come_back_as_they_were(door: RawDoor, count: int) -> None:
    data = os.urandom(4 * count)
    numbers = [door.send("infer", floats("identity_fp32", count), data) for _ in range(3)]

    answers = [door.receive() for _ in numbers]

    # in the order in which they are done
    assert numbers == sorted(number for _, number, _, _ in answers)
    assert [fields for kind, _, fields, _ in answers if kind == "error"] == []
    assert all([data] == frames for _, _, _, frames in answers)


def test_the_outputs_that_are_named_come_and_no_others(door: RawDoor) -> None:
    inputs = [{"name": f"INPUT{i}", "datatype": "FP32", "shape": [1, 16]} for i in range(2)]
    data = struct.pack("<16f", *range(16))
    fields = {"model": "add_sub", "version": "1", "inputs": inputs, "outputs": ["OUTPUT1"]}

    kind, answer, frames = door.ask("infer", fields, data, data)

    assert kind == "response", answer
    assert [output["name"] for output in answer["outputs"]] == ["OUTPUT1"]
    assert [bytes(64)] == frames


def test_an_output_can_be_its_largest_classes(door: RawDoor) -> None:
    fields = floats("identity_fp32", 3, outputs=[{"name": "OUTPUT0", "classes": 2}])

    _, answer, [frame] = door.ask("infer", fields, struct.pack("<3f", 5, 9, 7))

    assert answer["outputs"] == [{"name": "OUTPUT0", "datatype": "BYTES", "shape": [2]}]
    assert frame[4 : 4 + frame[0]] == b"9.000000:1"


def test_questions_about_the_server_and_its_models(server: Server, door: RawDoor) -> None:
    _, http = server.request_json("/v2/models/identity_fp32")

    assert door.ask("server.live") == ("answer", {"live": True}, [])
    # a stub that an earlier test has killed may still be on its way
    eventually(lambda: door.ask("server.ready") == ("answer", {"ready": True}, []), 60)
    assert server.request_json("/v2")[1] == door.ask("server.metadata")[1]
    named = {"model": "identity_fp32"}
    assert door.ask("model.ready", {**named, "version": "1"})[1] == {"ready": True}
    assert http == door.ask("model.metadata", named)[1]
    assert door.ask("model.config", named)[1]["name"] == "identity_fp32"
    before = door.ask("model.statistics", named)[1]["model_stats"][0]["inference_count"]
    door.ask("infer", floats("identity_fp32", 1), bytes(4))
    [after] = door.ask("model.statistics", named)[1]["model_stats"]
    assert before + 1 == after["inference_count"]
    everything = door.ask("model.statistics")[1]["model_stats"]
    assert set(_LOADED) <= {entry["name"] for entry in everything}


def test_models_are_loaded_and_unloaded_by_who_has_the_key(door: RawDoor) -> None:
    named = {"model": "doubled", **_KEYS}

    assert door.ask("repository.load", named) == ("answer", {}, [])
    index = door.ask("repository.index", {"ready": True, **_KEYS})[1]["models"]
    assert {"name": "doubled", "version": "1", "state": "READY"} in index
    assert door.ask("repository.unload", named) == ("answer", {}, [])
    assert door.ask("model.ready", {"model": "doubled"})[1] == {"ready": False}


def test_a_model_is_loaded_with_files_and_a_configuration(server: Server, door: RawDoor) -> None:
    source = (server.repository / "identity_fp32/1/model.py").read_bytes()
    config = '{"backend": "python", "input": [{"name": "INPUT0", "data_type": "TYPE_FP32",'
    config += ' "dims": [2]}], "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32",'
    config += ' "dims": [2]}]}'
    fields = {"model": "brought", "config": config, "files": ["1/model.py"], **_KEYS}

    assert door.ask("repository.load", fields, source) == ("answer", {}, [])
    assert [bytes(8)] == door.ask("infer", floats("brought", 2), bytes(8))[2]
    assert door.ask("repository.unload", {"model": "brought", **_KEYS}) == ("answer", {}, [])


@pytest.mark.parametrize("keys", [None, {}, {"admin": "wrong"}, {"admin": 1}, "secret"])
def test_a_restricted_verb_needs_its_key(door: RawDoor, keys: Any) -> None:
    fields = {} if keys is None else {"keys": keys}

    for verb in ("repository.index", "repository.load", "repository.unload"):
        kind, error, _ = door.ask(verb, fields)
        assert (kind, error["code"]) == ("error", "UNAVAILABLE")
        is_wrong = keys == {"admin": "wrong"}
        why = "It has a wrong value" if is_wrong else "The request does not have it"
        assert f"This protocol is restricted, expecting key 'admin'. {why}" == error["text"]


def test_tensors_lie_in_the_shared_memory_of_the_client(server: Server, door: RawDoor) -> None:
    name, size = f"zmqtriton_{os.getpid()}_door", 4 * 150_528
    memory = Path("/dev/shm", name)
    data = os.urandom(size)
    memory.write_bytes(data + bytes(size))
    try:
        region = {"name": "mine", "key": f"/{name}", "byte_size": 2 * size}
        assert door.ask("shared_memory.register", region) == ("answer", {}, [])
        [row] = door.ask("shared_memory.status", {"name": "mine"})[1]["regions"]
        assert (f"/{name}", 2 * size) == (row["key"], row["byte_size"])
        place = {"region": "mine", "byte_size": size}
        fields = {
            "model": "identity_fp32",
            "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [size // 4], **place}],
            "outputs": [{"name": "OUTPUT0", "offset": size, **place}],
        }

        kind, answered, frames = door.ask("infer", fields)

        assert (kind, frames) == ("response", [])
        assert answered["outputs"][0]["region"] == "mine"
        assert data == memory.read_bytes()[size:]
        assert door.ask("shared_memory.unregister", {"name": "mine"}) == ("answer", {}, [])
        kind, problem, _ = door.ask("infer", fields)
        assert (problem["http_status"], problem["code"]) == (404, "NOT_FOUND")
    finally:
        memory.unlink()


# --------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("model", "datatype", "shape", "name"),
    [
        ("nothing", "FP32", [1], "INPUT0"),
        ("identity_fp32", "INT32", [1], "INPUT0"),
        ("identity_fp32", "FP32", [1, 1], "INPUT0"),
        ("identity_fp32", "FP32", [1], "INPUT9"),
        ("identity_fp32", "FP99", [1], "INPUT0"),
        ("doubled", "FP32", [1], "INPUT0"),
    ],
)
def test_a_wrong_request_gets_the_words_and_status_of_http(
    server: Server, door: RawDoor, model: str, datatype: str, shape: list[int], name: str
) -> None:
    tensor = {"name": name, "datatype": datatype, "shape": shape}
    document = {"inputs": [{**tensor, "data": [0]}]}
    status, answer = server.request_json(f"/v2/models/{model}/infer", document)

    kind, error, _ = door.ask("infer", {"model": model, "inputs": [tensor]}, bytes(4))

    assert (kind, error["final"]) == ("error", True)
    assert (status, answer["error"]) == (error["http_status"], error["text"])


_INPUT = {"name": "INPUT0", "datatype": "FP32", "shape": [1]}


@pytest.mark.parametrize(
    ("fields", "frames", "text"),
    [
        ({}, 0, "infer has no 'model'"),
        ({"model": 1}, 0, "'model' of infer must be a string"),
        ({"model": "m" * 2000}, 0, "at most 1024 characters"),
        ({"model": "identity_fp32", "modle": 1}, 0, "infer has no field 'modle'"),
        ({"model": "identity_fp32", "inputs": {}}, 0, "'inputs' of infer must be an array"),
        ({"model": "identity_fp32", "inputs": [1]}, 0, "an input must be a map"),
        ({"model": "identity_fp32", "inputs": [_INPUT]}, 0, "unable to find data"),
        ({"model": "identity_fp32", "inputs": [_INPUT]}, 2, "unexpected additional input data"),
        (
            {"model": "identity_fp32", "inputs": [{**_INPUT, "shape": [-1]}]},
            1,
            "must be of unsigned integers",
        ),
        (
            {"model": "identity_fp32", "inputs": [{**_INPUT, "region": "none", "byte_size": 4}]},
            0,
            "Unable to find shared memory region: 'none'",
        ),
        ({"model": "m", "outputs": ["a", "a"]}, 0, "output 'a' already exists"),
        ({"model": "m", "priority": -1}, 0, "'priority' of infer must be from 0 to"),
        ({"model": "m", "sequence_id": 1.5}, 0, "'sequence_id' must be an integer or a string"),
        ({"model": "m", "parameters": {"a": []}}, 0, "a parameter must be an integer"),
        ({"model": "m", "credit": True}, 0, "'credit' of infer must be an integer"),
    ],
)
def test_a_malformed_request_says_what_is_wrong(
    door: RawDoor, fields: dict[str, Any], frames: int, text: str
) -> None:
    kind, error, _ = door.ask("infer", fields, *[bytes(4)] * frames)

    assert ("error", error["code"] == "INVALID_ARG") == (kind, error["http_status"] == 400)
    assert text in error["text"]


_GARBAGE = [
    b"",
    b"\xc1",
    b"GET / HTTP/1.1\r\n\r\n",
    msgpack.packb(7),
    msgpack.packb([]),
    msgpack.packb(["1", "infer", 1, {}]),
    msgpack.packb([2, "infer", 1, {}]),
    msgpack.packb([1, "infer", 1]),
    msgpack.packb([1, "infer", 0, {}]),
    msgpack.packb([1, "infer", -1, {}]),
    msgpack.packb([1, "infer", 2**63, {}]),
    msgpack.packb([1, "fetch", 1, {}]),
    msgpack.packb([1, 3, 1, {}]),
    msgpack.packb([1, "infer", 1, []]),
    msgpack.packb([1, "infer", 1, {b"model": 1}]),
    msgpack.packb([1, "credit", 1, {"responses": "all"}]),
    b"\x94" * 5000,
    bytes(2 * MIB),
]


def test_garbage_gets_an_error_and_disturbs_nothing_else(server: Server, door: RawDoor) -> None:
    before = door_pid(server)
    other = door.send("infer", *held("undisturbed"), id=1000)
    await_execution(server, "undisturbed")

    for garbage in _GARBAGE:
        door.socket.send_multipart([garbage, b"frame", b""])
        kind, number, error, _ = door.receive()
        assert kind == "error", garbage[:20]
        assert number in (0, 1)
        assert error["http_status"] in (400, 501)
        assert error["text"]
    door.socket.send_multipart([msgpack.packb([1, "infer", 1, {}]), *[b""] * 1025])
    assert "cannot have more than 1024 frames" in door.receive()[2]["text"]

    release_execution(server.journal, "undisturbed")
    assert ("response", other) == door.receive()[:2]
    assert before == door_pid(server)


def test_bytes_that_are_not_of_zeromq_end_their_connection_alone(server: Server) -> None:
    before = door_pid(server)
    # what begins with another byte than ff is taken for ZMTP 1
    old = [bytes([first]) + os.urandom(4095) for first in range(0, 255, 8)]
    for garbage in (*old, b"GET / HTTP/1.1\r\n\r\n" * 10, b"\xff" + bytes(9)):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.settimeout(60)
            stranger.connect(path_of(server))
            stranger.sendall(garbage)
            stranger.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                while stranger.recv(4096):
                    pass
    with RawDoor(path_of(server)) as client:
        assert client.ask("server.live") == ("answer", {"live": True}, [])
    assert before == door_pid(server)


def test_a_message_without_end_has_bounded_memory(server: Server) -> None:
    """libzmq would read it for ever; what it is refused ends that connection."""
    frame = b"\x03" + (16 * MIB).to_bytes(8, "big") + bytes(16 * MIB)
    sent = 0
    with RawDoor(path_of(server)) as other, socket.socket(socket.AF_UNIX) as endless:
        endless.settimeout(60)
        endless.connect(path_of(server))
        endless.sendall(_greeting())
        with contextlib.suppress(OSError):
            while sent < 256:
                endless.sendall(frame)
                sent += 1
        assert 64 < sent < 256
        assert server.is_ready()
        eventually(lambda: _is_live(other), 30)
    limit = 2 * LIMIT + 1024 * MIB
    assert sent * 16 * MIB < limit + 128 * MIB


def _is_live(client: RawDoor) -> bool:
    client.send("server.live")
    return bool(client.socket.poll(1000))


def _greeting() -> bytes:
    """The beginning of a connection of ZMTP 3 without security, as a DEALER sends it."""
    signature = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
    kind = b"\x0bSocket-Type" + (6).to_bytes(4, "big") + b"DEALER"
    ready = b"\x05READY" + kind
    return signature + b"\x04" + bytes([len(ready)]) + ready


def test_an_id_stands_for_one_request_at_a_time(server: Server, door: RawDoor) -> None:
    door.send("infer", *held("twice"), id=5)
    await_execution(server, "twice")
    door.send("server.live", id=5)

    kind, number, error, _ = door.receive()
    assert (kind, number) == ("error", 0)
    assert "request with the id 5 that is not answered yet" in error["text"]
    release_execution(server.journal, "twice")
    assert door.receive()[:2] == ("response", 5)
    door.send("server.live", id=5)
    assert door.receive()[:2] == ("answer", 5)


def test_a_client_that_names_itself_is_refused(server: Server) -> None:
    with RawDoor(path_of(server), identity=b"me") as client:
        kind, error, _ = client.ask("server.live")

    assert (kind, error["code"]) == ("error", "INVALID_ARG")
    assert "must not choose its routing id" in error["text"]


def test_the_socket_is_for_its_user_and_group(server: Server) -> None:
    status, directory = os.stat(path_of(server)), os.stat(Path(path_of(server)).parent)

    assert stat.S_ISSOCK(status.st_mode)
    assert (stat.S_IMODE(status.st_mode), stat.S_IMODE(directory.st_mode)) == (0o660, 0o710)
    assert {os.getgid()} == {status.st_gid, directory.st_gid}


# -------------------------------------------------------------------- streams


def test_a_stream_has_all_its_responses_in_order(door: RawDoor) -> None:
    for number in range(1, 5):
        door.send("infer", *tokens(200, request_id=f"s{number}"), id=number)
    indexes: dict[int, list[int]] = {number: [] for number in range(1, 5)}
    finals = 0

    while finals < 4:
        kind, number, fields, frames = door.receive()
        assert kind in ("response", "end"), fields
        if kind == "response":
            assert f"s{number}" == fields["request_id"]
            indexes[number] += struct.unpack("<i", frames[1])
        finals += kind == "end" or fields["final"]

    assert {number: list(range(200)) for number in indexes} == indexes


def test_no_more_responses_come_than_were_granted(server: Server, door: RawDoor) -> None:
    stream = door.send("infer", *tokens(10, credit=3))
    seen = [struct.unpack("<i", door.receive()[3][1])[0] for _ in range(3)]
    # answers to others still come, and nothing of the stream before them
    assert door.ask("server.live") == ("answer", {"live": True}, [])
    door.send("credit", {"responses": 2}, id=stream)
    seen += [struct.unpack("<i", door.receive()[3][1])[0] for _ in range(2)]
    assert door.ask("server.live") == ("answer", {"live": True}, [])
    door.send("credit", {"responses": 100}, id=stream)
    while True:
        kind, _, fields, frames = door.receive()
        seen += struct.unpack("<i", frames[1]) if frames else ()
        if kind == "end" or fields["final"]:
            break

    assert list(range(10)) == seen


def test_who_reads_no_answers_has_a_bounded_share(server: Server) -> None:
    size = 8 * MIB
    with RawDoor(path_of(server), receive_limit=1) as lazy, RawDoor(path_of(server)) as other:
        for _ in range(40):
            lazy.send("infer", floats("identity_fp32", size // 4), bytes(size))
        for _ in range(20):
            assert other.ask("infer", floats("identity_fp32", 1), bytes(4))[0] == "response"
        kinds = [lazy.receive() for _ in range(40)]
    refused = [fields for kind, _, fields, _ in kinds if kind == "error"]
    answered = [frames for kind, _, _, frames in kinds if kind == "response"]
    assert all([bytes(size)] == frames for frames in answered)
    assert [fields for fields in refused if fields["http_status"] != 503] == []
    # nothing of what was held is left
    eventually(lambda: _held_bytes(server) == 0, 30)


def _held_bytes(server: Server) -> int:
    with ctl.ServerSelector(f"{server.directory.parent}/r").connect() as caller:
        processes = caller.call("status")["processes"]
    [door] = [process for process in processes if process["role"] == "door"]
    # it looks once a second, and tells what has changed since
    memory = door.get("client_memory", {"requests_bytes": 0, "answers_bytes": 0})
    return int(memory["requests_bytes"] + memory["answers_bytes"])


# --------------------------------------------------------- cancelling, deaths


def test_a_cancelled_request_ends_and_its_model_sees_it(server: Server, door: RawDoor) -> None:
    number = door.send("infer", *held("cancelled"))
    await_execution(server, "cancelled")
    door.send("cancel", id=number)

    kind, answered, error, _ = door.receive()

    assert ("error", number, "CANCELLED") == (kind, answered, error["code"])
    eventually(lambda: has_seen_cancellation(server.journal, "cancelled"), 30)
    release_execution(server.journal, "cancelled")
    door.send("cancel", id=number)  # it is answered: nothing comes
    assert door.ask("server.live") == ("answer", {"live": True}, [])


def was_cancelled(server: Server, request_id: str) -> bool:
    return ("cancelled", request_id) in [(r.event, r.id) for r in read_journal(server.journal)]


def test_a_cancelled_stream_ends_and_its_model_sees_it(server: Server, door: RawDoor) -> None:
    number = door.send("infer", *tokens(10**6, 1000, request_id="enough"))
    door.receive()
    door.send("cancel", id=number)

    while (message := door.receive())[0] == "response":
        pass

    assert ("error", number, "CANCELLED") == (*message[:2], message[2]["code"])
    eventually(lambda: was_cancelled(server, "enough"), 30)


def test_what_a_killed_client_has_asked_is_cancelled(server: Server) -> None:
    code = f"""
import sys, time
from zmqtriton_extras.door.tests.raw_door import RawDoor, held, tokens
door = RawDoor({path_of(server)!r})
door.send("infer", *tokens(10**6, 1000, request_id="orphan"))
door.receive()
door.send("infer", *held("orphaned"))
print("asked", flush=True)
time.sleep(600)
"""
    client = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT)
    assert client.stdout is not None
    assert client.stdout.readline() == b"asked\n"
    await_execution(server, "orphaned")

    client.kill()
    client.wait()
    client.stdout.close()

    eventually(lambda: was_cancelled(server, "orphan"), 30, "the end of the stream")
    eventually(lambda: has_seen_cancellation(server.journal, "orphaned"), 30)
    release_execution(server.journal, "orphaned")


def test_a_killed_stub_fails_what_it_had_and_comes_back(server: Server, door: RawDoor) -> None:
    number = door.send("infer", *tokens(10**6, 1000))
    door.receive()
    [pid] = server.stub_pids("tokens")

    os.kill(pid, signal.SIGKILL)

    while (message := door.receive())[0] == "response":
        pass
    assert ("error", number, "UNAVAILABLE") == (*message[:2], message[2]["code"])
    assert "is not healthy" in message[2]["text"]
    eventually(lambda: door.ask("model.ready", {"model": "tokens"})[1]["ready"], 30)


@pytest.mark.long(
    "system/faults/test_broker_death.py::test_a_killed_broker_costs_nothing_that_was_not_being_executed",
    "extras/door/system/test_door.py::test_clients_find_the_next_process_of_the_door",
)
def test_requests_survive_the_death_of_the_broker(server: Server, door: RawDoor) -> None:
    number = door.send("infer", *held("survivor"))
    await_execution(server, "survivor")
    [broker] = server.pids()["broker"]

    os.kill(broker, signal.SIGKILL)
    release_execution(server.journal, "survivor")

    assert ("response", number) == door.receive()[:2]
    eventually(server.is_ready, 30)


def test_clients_find_the_next_process_of_the_door(server: Server, door: RawDoor) -> None:
    assert door.ask("server.live") == ("answer", {"live": True}, [])
    before = door_pid(server)

    os.kill(before, signal.SIGKILL)

    eventually(lambda: before not in server.pids().get("door", [before]), 30)
    for _ in range(60):  # what is sent into the dead connection is lost
        door.send("server.live")
        if door.socket.poll(1000):
            break
    assert door.receive()[0] == "answer"


@pytest.mark.long(
    "extras/door/system/test_leaving.py::test_a_server_that_stops_answers_until_its_clients_are_quiet"
)
def test_at_the_end_what_was_asked_is_answered(tmp_path: Path) -> None:
    options = ["--zmq-door", f"--runtime-directory={tmp_path / 'r'}"]
    server = Server(tmp_path / "s", ["journal"], options=options, frontends=FRONTENDS)
    with server, RawDoor(path_of(server)) as door:
        number = door.send("infer", *held("last"))
        await_execution(server, "last")
        os.kill(server.pids()["supervisor"][0], signal.SIGTERM)
        eventually(lambda: "Waiting for in-flight requests" in server.log_text(), 30)
        release_execution(server.journal, "last")
        kind, answered, fields, _ = door.receive()
        assert ("response", number, True) == (kind, answered, fields["leaving"])
        eventually(lambda: server.returncode == 0, 60)
    assert not Path(path_of(server)).exists()
