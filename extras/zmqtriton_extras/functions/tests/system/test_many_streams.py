"""Many streams of one model on a real server: who is in which step, and how each one ends."""

from __future__ import annotations

import http.client
import json
import os
import queue
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from websockets.sync import client as web_sockets

from tests.standard.ctl.system.commands import ctl
from tests.stub import interpreters
from tests.support.scraping import sum_series
from tests.support.scripted import string_parameter
from tests.support.server import Server, is_open, tensor
from tests.support.waiting import eventually
from zmqtriton_extras.functions.exporting import run_export
from zmqtriton_extras.functions.tests.system.many_streams import (
    Client,
    Clients,
    Journal,
    executions,
    kill,
    many_clients,
)

pytestmark = pytest.mark.system

KINDS = ("processes", "forks", "threads")
MANY = 64


def runtime_in(directory: Path) -> str:
    """Return the option for sockets where `ctl` looks for them."""
    return f"--runtime-directory={directory}/run"


class World:
    def __init__(self, directory: Path) -> None:
        options = ("--model-control-mode=explicit", "--load-model=*", runtime_in(directory))
        self.server = Server(directory / "server", options=options, frontends=("grpc", "metrics"))
        self.journals = {kind: Journal(directory / kind) for kind in KINDS}
        directory.chmod(0o777)
        for kind, journal in self.journals.items():
            config = string_parameter("INSTANCES", kind)
            self.server.write_model(kind, config, journal.source().replace("Count", kind.title()))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("streams"))
    with world.server:
        yield world


@pytest.fixture
def journal(world: World) -> Journal:
    return world.journals["processes"]


@pytest.fixture
def clients(world: World, journal: Journal) -> Iterator[Clients]:
    with many_clients(world.server, journal) as clients:
        yield clients


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def test_a_newcomer_is_in_the_next_step_of_the_others(
    world: World, journal: Journal, clients: Clients
) -> None:
    asked = clients.ask_many("processes", MANY - 1)
    eventually(lambda: {*names(MANY - 1)} in map(set, journal.steps().values()), 60, "all of them")
    step, count = journal.hold(*names(MANY - 1)), executions(world.server, "processes")

    newcomer = clients.ask("processes", "newcomer", pieces=3)
    eventually(lambda: executions(world.server, "processes") > count, 60, "it is in the instance")
    journal.let_go()

    texts = newcomer.result(120)
    assert [f"newcomer {step + more} old" for more in (1, 2, 3)] == texts
    journal.stop()
    for name, answer in asked.items():
        numbers = [int(text.split()[1]) for text in answer.result(120)]
        assert list(range(numbers[0], numbers[-1] + 1)) == numbers, name


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_leaves_is_in_no_further_step(world: World, kind: str) -> None:
    journal = world.journals[kind]
    with many_clients(world.server, journal) as clients:
        asked = clients.ask_many(kind, 4)
        leaving = Client(world.server, kind, "leaving")
        next(leaving.read())

        leaving.leave()
        eventually(lambda: journal.has(left="leaving"), 60, "it has left")
        step = max(journal.steps())
        eventually(lambda: len(journal.steps(step)) > 5, 60, "other steps")

        journal.stop()
        rows = journal.rows()
        place = next(n for n, row in enumerate(rows) if row.get("left") == "leaving")
        assert not any("leaving" in row.get("names", ()) for row in rows[place:])
        for answer in asked.values():
            numbers = [int(text.split()[1]) for text in answer.result(120)]
            assert list(range(numbers[0], numbers[-1] + 1)) == numbers


#: A step of two streams lasts until the second is cancelled. Pieces have the number of the step.
PLAIN = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    number = 0

    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "N", "data_type": "TYPE_INT32", "dims": [1]})
        for name in ("STEP", "SIZE"):
            config.add_output({"name": name, "data_type": "TYPE_INT32", "dims": [1]})
        return config

    def admit(self, request):
        return request

    def step(self, states):
        self.number += 1
        if len(states) == 2:
            open(PLACE, "w").close()
        while len(states) == 2 and not states[1].is_cancelled():
            pass
        values = {"STEP": self.number, "SIZE": len(states)}
        tensors = [pb_utils.Tensor(k, np.array([v], np.int32)) for k, v in values.items()]
        return [pb_utils.InferenceResponse(tensors) for _ in states]
"""


def test_after_a_cancellation_in_a_step_no_other_step_has_the_stream(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    server = Server(tmp_path / "server", frontends=())
    source = PLAIN.replace("PLACE", repr(str(tmp_path / "both")))
    server.write_model("plain", 'backend: "streams"', source)

    def ask() -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=240)
        connection.request("POST", "/v2/models/plain/generate_stream", b'{"N": 1}')
        return connection

    with server, closing(ask()) as first:
        answer = first.getresponse()
        answer.readline()
        second = ask()
        eventually((tmp_path / "both").exists, 60, "both are in a step")
        second.close()
        sizes: dict[int, int] = {}
        while 2 not in sizes.values() or max(sizes.values()) == [*sizes.values()][-1]:
            line = answer.readline()
            if line.startswith(b"data: "):
                row = json.loads(line[6:])
                sizes[row["STEP"]] = row["SIZE"]
        answer.close()

    [both] = [step for step, size in sizes.items() if size == 2]
    assert 1 == sizes[both + 1]


def test_a_reader_that_stops_is_left_out_of_steps_and_holds_none_up(
    world: World, journal: Journal, clients: Clients
) -> None:
    slow = Client(world.server, "processes", "slow", size=4000)
    asked = clients.ask_many("processes", MANY - 1)

    def is_left_out() -> bool:
        last = [*journal.steps().values()][-20:]
        return len(last) == 20 and all("slow" not in each for each in last)

    eventually(is_left_out, 120, "steps without it")

    def behind() -> float:
        return sum_series(world.server, "streams", state="behind", model="processes")

    eventually(lambda: 1 == behind(), 60, "it is counted")
    step = max(journal.steps())
    reader = slow.read()
    read = [next(reader)]
    while int(read[-1].split()[1]) <= step:
        read.append(next(reader))  # it is in steps again
    journal.stop()
    read += list(reader)

    texts = {"slow": read, **{name: answer.result(120) for name, answer in asked.items()}}
    steps = journal.steps()
    for name, pieces in texts.items():
        # a busy machine may leave out others of them now and then
        had = [number for number, names in steps.items() if name in names]
        assert had == [int(text.split()[1]) for text in pieces], "it has lost nothing"
    slow.leave()


def test_a_stream_that_fails_leaves_the_others_alone(
    world: World, journal: Journal, clients: Clients
) -> None:
    other = clients.ask("processes", "other")
    journal.hold("other")
    failing = clients.ask("processes", "fails")
    journal.let_go()

    assert ["this stream alone"] == failing.result(120)
    journal.stop()
    assert "other" == other.result(120)[-1].split()[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_in_the_middle_of_a_step_ends_each_stream_with_an_error(
    world: World, kind: str
) -> None:
    journal = world.journals[kind]
    with many_clients(world.server, journal) as clients:
        asked = clients.ask_many(kind, MANY)
        eventually(lambda: MANY in map(len, journal.steps().values()), 60, "all of them")
        journal.hold(*names(MANY))
        [pid] = {row["pid"] for row in journal.rows()}

        kill(pid)

        for name, answer in asked.items():
            *texts, end = answer.result(240)
            assert "is not healthy" in end
            assert all(text.split()[0] == name for text in texts)
        journal.clear()
        assert ["again 1 old"] == clients.ask(kind, "again", pieces=1).result(240)


def test_a_reload_lets_streams_end_and_has_new_ones_with_the_new_code(
    world: World, journal: Journal, clients: Clients
) -> None:
    asked = clients.ask_many("processes", 8, pieces=200)
    journal.hold(*names(8))
    file = world.server.repository / "processes" / "1" / "model.py"
    file.write_text(file.read_text().replace('WORD = "old"', 'WORD = "new"'))
    try:
        assert not world.server.control_model("load", "processes")
        later = clients.ask("processes", "later", pieces=2)
        journal.let_go()

        assert ["new", "new"] == [text.split()[2] for text in later.result(120)]
        for answer in asked.values():
            assert 200 * ["old"] == [text.split()[2] for text in answer.result(120)]
    finally:
        file.write_text(file.read_text().replace('WORD = "new"', 'WORD = "old"'))
        assert not world.server.control_model("load", "processes")


def test_a_server_that_stops_lets_streams_end(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    tmp_path.chmod(0o777)
    server = Server(tmp_path / "server", frontends=())
    server.write_model("count", "", journal.source())
    with server, many_clients(server, journal) as clients:
        asked = clients.ask_many("count", 8, pieces=100)
        journal.hold(*names(8))
        os.kill(server.pid, signal.SIGTERM)
        eventually(lambda: not is_open(server.http_port), 60, "it is stopping")
        journal.let_go()
        assert [100] * 8 == [len(answer.result(120)) for answer in asked.values()]


# --------------------------------------------------------------------- all ways

TALK = """
from typing import List, Optional
from zmqtriton import End, model

@model(streams=8)
class Talk:
    def admit(self, prompt: str, max_tokens: int = 3) -> dict:
        return {"text": prompt.split()[-1], "left": max_tokens}

    def step(self, states: list) -> List[Optional[str]]:
        return [self.next(state) for state in states]

    def next(self, state):
        state["left"] -= 1
        text = f"{state['text']}{state['left']} "
        return text if state["left"] else End(text)
"""
#: Has outputs and parameters by the names of OpenAI's API.
REASONS = """
from typing import List, NamedTuple, Optional
from zmqtriton import End, model

class Piece(NamedTuple):
    output: str
    finish_reason: Optional[str] = None

@model(streams=8)
class Reasons:
    def admit(self, prompt: str, max_tokens: int = 3, stop: Optional[List[str]] = None) -> dict:
        return {"text": prompt, "left": max_tokens, "stop": stop or []}

    def step(self, states: list) -> List[Optional[Piece]]:
        return [self.next(state) for state in states]

    def next(self, state):
        state["left"] -= 1
        word = f"{state['text']}{state['left']}"
        if word in state["stop"]:
            return End(Piece("", "stop"))
        return Piece(f"{word} ") if state["left"] else End(Piece(f"{word} ", "length"))
"""
ASKING = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "TEXT", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "TEXT", "data_type": "TYPE_STRING", "dims": [1]})
        return config

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        text = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
        call = pb_utils.InferenceRequest(
            model_name="talk",
            inputs=[pb_utils.Tensor("prompt", text)],
            requested_output_names=["output"],
        )
        answers = [each.output_tensors() for each in call.exec(decoupled=True)]
        text = b"".join(each[0].as_numpy()[0] for each in answers if each)
        return pb_utils.InferenceResponse([pb_utils.Tensor("TEXT", np.array([text], np.object_))])
"""


@pytest.fixture(scope="module")
def talking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("talk")
    server = Server(directory, options=("--allow-openai", "--jobs"), frontends=("grpc",))
    server.write_model("talk", "", TALK)
    server.write_model("reasons", "", REASONS)
    server.write_model("asking", "", ASKING)
    with server:
        yield server


WHOLE = "a2 a1 a0 "


def test_events_have_the_pieces(talking: Server) -> None:
    for path in ("/talk", "/v2/models/talk/generate_stream"):
        body = talking.exchange(path, b'{"prompt": "a"}').body.decode()
        texts = [json.loads(row)["output"] for row in re.findall(r"data: (.*)\n", body)]
        assert WHOLE == "".join(texts), path


def test_a_grpc_stream_has_the_pieces_of_several_requests(talking: Server) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    text = grpc_client.InferInput("prompt", [1], "BYTES")
    with grpc_client.InferenceServerClient(talking.grpc_address) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for name in ("a", "b"):
            text.set_data_from_numpy(np.array([name], object))
            client.async_stream_infer("talk", [text], request_id=name)
        texts = {"a": "", "b": ""}
        while any(len(each) < len(WHOLE) for each in texts.values()):
            result, error = answers.get(timeout=120)
            assert error is None
            texts[result.get_response().id] += result.as_numpy("output")[0].decode()
    assert {"a": WHOLE, "b": WHOLE.replace("a", "b")} == texts


@pytest.mark.parametrize("is_stream", [True, False])
def test_openai_has_the_pieces(talking: Server, is_stream: bool) -> None:
    document = {"model": "talk", "max_tokens": 2, "stream": is_stream}
    for path, more, pattern in (
        ("/v1/completions", {"prompt": "a"}, r'"text":"([^"]*)"'),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}, CONTENT),
    ):
        body = json.dumps({**document, **more}).encode()
        answer = talking.exchange(path, body)
        assert 200 == answer.status
        text = "".join(re.findall(pattern, answer.body.decode()))
        assert ["1", "0"] == re.findall(r"(\d) ", text), path


CONTENT = r'"content":"([^"]*)"'


@pytest.mark.parametrize(
    ("more", "text", "reason"),
    [
        ({"max_tokens": 2}, "a1 a0 ", "length"),
        ({"max_tokens": 4, "stop": "a2"}, "a3 ", "stop"),
        ({"max_tokens": 4, "stop": ["a0", "a1"]}, "a3 a2 ", "stop"),
    ],
)
@pytest.mark.parametrize("is_stream", [True, False])
def test_a_stream_says_why_its_text_ends(
    talking: Server, more: dict[str, Any], text: str, reason: str, *, is_stream: bool
) -> None:
    document = {"model": "reasons", "prompt": "a", "stream": is_stream, **more}

    answer = talking.exchange("/v1/completions", json.dumps(document).encode())

    whole = answer.body.decode()
    assert text == "".join(re.findall(r'"text":"([^"]*)"', whole))
    assert [reason] == re.findall(r'"finish_reason":"(\w+)"', whole)


def test_a_web_socket_has_the_pieces(talking: Server) -> None:
    text = {"name": "prompt", "datatype": "BYTES", "shape": [1], "data": ["a"]}
    url = f"ws://127.0.0.1:{talking.http_port}/v2/models/talk/stream"
    with web_sockets.connect(url, open_timeout=60) as socket:
        socket.send(json.dumps({"id": "a", "inputs": [text]}))
        texts = ""
        while texts != WHOLE:
            texts += json.loads(socket.recv(120))["outputs"][0]["data"][0]


def test_a_program_has_the_pieces(talking: Server) -> None:
    code = f"import zmqtriton\nprint(*zmqtriton.connect('{talking.pid}').talk('a'), sep='', end='')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (WHOLE, 0) == (done.stdout, done.returncode), done.stderr


@pytest.mark.extra("jobs")
def test_a_job_has_the_pieces(talking: Server) -> None:
    job = begin_job(talking, "talk", prompt="a")
    eventually(lambda: job_state(talking, job)["state"] == "succeeded", 60, "its end")

    path = f"/v2/jobs/{job}/responses?after=0"
    responses = talking.exchange(path).document["responses"]
    assert WHOLE == "".join(each.get("output", "") for each in responses)


def begin_job(server: Server, model: str, **inputs: Any) -> str:
    body, headers = json.dumps(inputs).encode(), {"Prefer": "respond-async"}
    answer = server.exchange(f"/v2/models/{model}/generate_stream", body, headers)
    assert 202 == answer.status, answer
    return str(answer.document["id"])


def job_state(server: Server, job: str) -> dict[str, Any]:
    return server.exchange(f"/v2/jobs/{job}").document


def test_a_model_that_calls_it_has_the_pieces(talking: Server) -> None:
    status, document = talking.infer_json("asking", tensor("TEXT", "BYTES", ["a"], [1]))
    assert (200, [WHOLE]) == (status, document["outputs"][0]["data"])


# --------------------------------------------------------------- what it waits for


def explained(server: Server, model: str) -> list[str]:
    result = ctl(server, "explain", model, "-o", "json")
    assert result.stdout, result.output
    return [row["text"] for row in json.loads(result.stdout)]


def test_explain_says_what_streams_wait_for(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    journals = {name: Journal(tmp_path / name) for name in ("room", "few")}
    server = Server(tmp_path / "server", options=(runtime_in(tmp_path),), frontends=("metrics",))
    server.write_model("room", "", journals["room"].source(budget=2).replace("Count", "Room"))
    server.write_model("few", "", journals["few"].source(streams=2).replace("Count", "Few"))
    with server:
        for name, journal in journals.items():
            with many_clients(server, journal, 3) as clients:
                asked = clients.ask_many(name, 3)

                def said(model: str = name) -> str:
                    texts = {
                        "room": "requests wait for room: 2 streams have it",
                        "few": "1 request waits for a stream to end, not for an instance: 2 are",
                    }
                    return next((t for t in explained(server, model) if texts[model] in t), "")

                eventually(said, 60, name)
                if name == "room":
                    assert 1 == sum_series(server, "streams", state="waiting", model=name)
                journal.stop()
                assert [True] * 3 == [bool(answer.result(120)) for answer in asked.values()]


@pytest.mark.extra("jobs")
def test_jobs_that_wait_for_a_stream_have_a_place(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    journal = Journal(tmp_path / "journal")
    server = Server(tmp_path / "server", options=("--jobs",), frontends=())
    server.write_model("count", string_parameter("JOBS_LIMIT", "2"), journal.source(streams=2))
    with server:
        jobs = [begin_job(server, "count", name=name) for name in names(4)]
        eventually(lambda: 2 in map(len, journal.steps().values()), 60, "two streams")
        states = [job_state(server, job) for job in jobs]
        places = [(state["state"], state.get("place", 0)) for state in states]
        journal.stop()

        assert [("running", 0), ("running", 0), ("queued", 1), ("queued", 2)] == sorted(
            places, key=lambda each: each[1]
        )
        for job in jobs:
            eventually(lambda: job_state(server, job)["state"] == "succeeded", 60, "its end")  # noqa: B023


def test_metrics_have_all_steps_and_pieces(world: World, journal: Journal) -> None:
    def sums() -> list[float]:
        suffixes = ("pieces_total", "step_size_sum", "step_size_count", "step_seconds_count")
        return [sum_series(world.server, f"streams_{each}", model="processes") for each in suffixes]

    def has_streams() -> bool:
        return sum_series(world.server, "streams", model="processes") > 0

    eventually(lambda: not has_streams(), 60, "those of the test before are told")
    with many_clients(world.server, journal) as clients:
        before = sums()
        asked = clients.ask_many("processes", 8, pieces=50)
        assert [50] * 8 == [len(answer.result(120)) for answer in asked.values()]
        steps = len([row for row in journal.rows() if "step" in row])

        expected = [400, 400, steps, steps]
        eventually(lambda: expected == [a - b for a, b in zip(sums(), before, strict=True)], 60)
        assert not has_streams()


def test_explain_says_that_a_reader_does_not_keep_up(world: World, journal: Journal) -> None:
    with many_clients(world.server, journal):
        slow = Client(world.server, "processes", "slow", size=4000)

        def said() -> bool:
            # of another test's streams, if that was within the minute in which it is said once
            texts = explained(world.server, "processes")
            return any("streams wait for their readers" in text for text in texts)

        eventually(said, 60, "its reader")
        slow.leave()


def test_a_deadline_ends_the_stream_and_its_part_in_steps(world: World, journal: Journal) -> None:
    with many_clients(world.server, journal) as clients:
        other = clients.ask("processes", "other")
        eventually(lambda: journal.has(admitted="other"), 60, "another stream")
        body = json.dumps({"name": "late"}).encode()
        path = "/v2/models/processes/generate_stream"
        answer = world.server.exchange(path, body, {"X-Request-Timeout": "2"})

        assert "late" in answer.body.decode().splitlines()[0]
        assert "eadline" in answer.body.decode().splitlines()[-2]
        eventually(lambda: journal.has(left="late"), 60, "it has left")
        step = max(journal.steps())
        eventually(lambda: len(journal.steps(step)) > 5, 60, "other steps")
        assert not any("late" in each for each in journal.steps(step).values())
        journal.stop()
        assert other.result(120)


def test_both_forms_run_on_an_older_python_and_exported(tmp_path: Path) -> None:
    old = string_parameter("PYTHON_EXECUTABLE", interpreters.python_or_skip("3.8"))
    server = Server(tmp_path / "server", frontends=())
    (tmp_path / "talk.py").write_text(TALK.replace("class Talk", "class Exported"))
    assert 0 == run_export([str(tmp_path / "talk.py"), str(server.repository)])
    server.write_model("talk", old, TALK)
    server.write_model("plain", f'backend: "streams"\n{old}', ENDING)
    with server:
        for path in ("/v2/models/exported/generate_stream", "/talk"):
            body = server.exchange(path, b'{"prompt": "a"}').body.decode()
            assert ["a2 ", "a1 ", "a0 "] == re.findall(r'"output":"([^"]*)"', body), path
        body = server.exchange("/v2/models/plain/generate_stream", b'{"N": 3}').body.decode()
        assert ["3", "2", "1"] == re.findall(r'"LEFT":(\d)', body)


ENDING = """
import numpy as np
import triton_python_backend_utils as pb_utils
from zmqtriton import End

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        for add, name in ((config.add_input, "N"), (config.add_output, "LEFT")):
            add({"name": name, "data_type": "TYPE_INT32", "dims": [1]})
        return config

    def admit(self, request):
        return pb_utils.get_input_tensor_by_name(request, "N").as_numpy().copy()

    def step(self, states):
        tensors = [pb_utils.Tensor("LEFT", state.copy()) for state in states]
        for state in states:
            state -= 1
        responses = [pb_utils.InferenceResponse([tensor]) for tensor in tensors]
        return [r if state[0] else End(r) for r, state in zip(responses, states)]
"""
