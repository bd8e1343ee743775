"""Our own client of the door, beside the embedded one: the same methods, the same answers."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

import zmqtriton
from tests.support.journal import read_journal
from tests.support.needs import find_tool
from tests.support.server import ROOT, Server
from tests.support.waiting import eventually
from zmqtriton_extras.door.client.connection import Door
from zmqtriton_extras.door.tests.raw_door import RawDoor
from zmqtriton_floor.errors import InvalidArgument, Unavailable

MODELS = ("identity_fp32", "add_sub", "string_upper", "tokens", "doubled")
pytestmark = [
    pytest.mark.system,
    pytest.mark.large_tensors,
    pytest.mark.server(
        models=MODELS,
        options=(
            "--zmq-door",
            "--zmq-door-restricted=model-repository:admin=secret",
            "--runtime-directory=@DIRECTORY@/r",
            "--model-control-mode=explicit",
            *(f"--load-model={name}" for name in MODELS[:-1]),
        ),
        frontends=(),
    ),
]


def path_of(server: Server) -> str:
    return f"{server.directory.parent}/r/door"


def opened(server: Server) -> Door:
    return Door(path_of(server), keys={"admin": "secret"})


@pytest.fixture(scope="module")
def server(running: Server) -> Server:
    with opened(running) as door:  # what is opened at first use is no leak
        next(door.model("identity_fp32").infer(inputs={"INPUT0": np.zeros(1 << 20, "f")}))
    return running


@pytest.fixture
def door(server: Server) -> Iterator[Door]:
    with opened(server) as door:
        yield door


def was_cancelled(server: Server, request_id: str) -> bool:
    return ("cancelled", request_id) in [(r.event, r.id) for r in read_journal(server.journal)]


def test_a_model_that_is_loaded_anew_is_asked_as_it_is_now(door: Door) -> None:
    model = door.model("identity_fp32")
    [response] = model.infer(inputs={"INPUT0": [1, 2]})
    assert np.float32 == response.outputs["OUTPUT0"].dtype

    text = json.dumps(model.config()).replace("TYPE_FP32", "TYPE_INT64")
    door.load("identity_fp32", config=text)
    [response] = model.infer(inputs={"INPUT0": [1, 2]})
    door.load("identity_fp32")

    assert np.int64 == response.outputs["OUTPUT0"].dtype


def test_it_says_what_the_embedded_client_says(server: Server, door: Door) -> None:
    with zmqtriton.connect(path=f"{server.directory.parent}/r") as other:
        ours, theirs = door.model("add_sub"), other.model("add_sub")
        assert (door.live, door.ready) == (other.live, other.ready) == (True, True)
        assert other.metadata().items() <= door.metadata().items()
        assert other.models() == door.models()
        assert (ours.metadata(), ours.config()) == (theirs.metadata(), theirs.config())
        assert (ours.batch_ready, ours.is_ready()) == (theirs.batch_ready, theirs.is_ready())
        inputs = {"INPUT0": np.ones((1, 16), np.float32), "INPUT1": [[0.5] * 16]}
        before = server.statistics("add_sub")["inference_count"]
        [one], [two] = ours.infer(inputs=inputs), theirs.infer(inputs=inputs)
        assert one._replace(outputs={}) == two._replace(outputs={})
        for name in ("OUTPUT0", "OUTPUT1"):
            assert np.array_equal(one.outputs[name], two.outputs[name])
        assert before + 2 == ours.statistics()["model_stats"][0]["inference_count"]


@pytest.mark.parametrize("count", [0, 3, 1 << 22])
def test_numbers_come_back(door: Door, count: int) -> None:
    numbers = np.random.default_rng(count).random(count, np.float32)

    [response] = door.model("identity_fp32", 1).infer(inputs={"INPUT0": numbers}, request_id="r")

    assert np.array_equal(numbers, response.outputs["OUTPUT0"])
    assert (response.request_id, response.final, response.error) == ("r", True, None)


def test_texts_come_as_bytes(door: Door) -> None:
    [response] = door.model("string_upper").infer(inputs={"INPUT0": [["kühl", "b"]]})

    assert ["KÜHL".encode(), b"B"] == response.outputs["OUTPUT0"].reshape(-1).tolist()


def test_many_are_under_way_at_once(door: Door) -> None:
    model = door.model("identity_fp32")
    answers = [model.infer(inputs={"INPUT0": [number]}) for number in range(2000)]

    firsts = [next(answer).outputs["OUTPUT0"][0] for answer in reversed(answers)]

    assert list(reversed(range(2000))) == firsts


def test_errors_are_raised_and_the_next_request_is_answered(door: Door) -> None:
    with pytest.raises(InvalidArgument, match="unknown model: 'none' is not found"):
        next(door.model("none").infer(inputs={}))
    with pytest.raises(InvalidArgument, match="cannot be sent"):
        door.model("identity_fp32").infer(inputs={}, parameters={"a": 2**70})
    with pytest.raises(InvalidArgument, match="failed to get model version"):
        next(door.model("identity_fp32", "x").infer(inputs={}))
    assert not door.model("none").is_ready()
    [response] = door.model("identity_fp32").infer(inputs={"INPUT0": [1]})
    assert response.final


def test_a_stream_is_iterated_and_read_no_faster_than_it_is_taken(door: Door) -> None:
    stream = iter(door.model("tokens").infer(inputs={"COUNT": [1000]}))
    indexes = [next(stream).outputs["INDEX"][0]]
    # what it holds back is the stream's alone
    assert door.model("tokens").is_ready()
    indexes += [r.outputs["INDEX"][0] for r in stream if r.outputs]

    assert list(range(1000)) == indexes


def test_what_is_dropped_is_cancelled(server: Server, door: Door) -> None:
    inputs = {"COUNT": [10**6], "DELAY_US": [1000]}
    stream = iter(door.model("tokens").infer(inputs=inputs, request_id="dropped"))
    next(stream)
    del stream

    eventually(lambda: was_cancelled(server, "dropped"), 30)


def test_a_deadline_ends_the_request(server: Server, door: Door) -> None:
    inputs = {"COUNT": [10**6], "DELAY_US": [1000]}
    stream = door.model("tokens").infer(inputs=inputs, request_id="late", deadline_s=2.0)

    with pytest.raises(TimeoutError, match="deadline has passed"):
        for _ in stream:
            pass
    eventually(lambda: was_cancelled(server, "late"), 30)


def test_coroutines_ask_side_by_side_and_cancel(server: Server, door: Door) -> None:
    async def one(number: int) -> float:
        async for response in door.model("identity_fp32").async_infer(inputs={"INPUT0": [number]}):
            return float(response.outputs["OUTPUT0"][0])
        raise AssertionError

    async def read(count: int) -> list[int]:
        stream = door.model("tokens").async_infer(inputs={"COUNT": [count]})
        return [int(r.outputs["INDEX"][0]) async for r in stream if r.outputs]

    async def wait() -> None:
        inputs = {"COUNT": [10**6], "DELAY_US": [1000]}
        async for _ in door.model("tokens").async_infer(inputs=inputs, request_id="given up"):
            pass

    async def run() -> tuple[list[float], list[list[int]]]:
        waiting = asyncio.create_task(wait())
        numbers = await asyncio.gather(*map(one, range(200)))
        streams = await asyncio.gather(*map(read, [300] * 4))
        waiting.cancel()
        return numbers, streams

    numbers, streams = asyncio.run(run())
    assert list(range(200)) == numbers
    assert [list(range(300))] * 4 == streams
    eventually(lambda: was_cancelled(server, "given up"), 30)
    assert asyncio.run(one(7)) == 7  # in another loop
    [response] = door.model("identity_fp32").infer(inputs={"INPUT0": [8]})  # and in none
    assert response.outputs["OUTPUT0"].tolist() == [8]


def test_each_thread_has_a_connection_of_its_own(server: Server) -> None:
    checks = []

    def ask(number: int) -> None:
        with opened(server) as door:
            model = door.model("identity_fp32")
            for _ in range(50):
                [response] = model.infer(inputs={"INPUT0": [number]})
                checks.append(response.outputs["OUTPUT0"].tolist() == [number])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert checks == [True] * 400


def test_models_are_loaded_and_unloaded(server: Server, door: Door) -> None:
    source = (server.repository / "identity_fp32/1/model.py").read_bytes()
    config = door.model("identity_fp32").config()
    text = '{"backend": "python", "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", '
    text += '"dims": [1]}], "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [1]}]}'

    assert door.load("doubled").is_ready()
    door.unload("doubled")
    assert not door.model("doubled").is_ready()
    brought = door.load("brought", config=text, files={"1/model.py": source})
    assert next(brought.infer(inputs={"INPUT0": [5]})).outputs["OUTPUT0"].tolist() == [5]
    door.unload("brought")
    assert config["name"] == "identity_fp32"
    with (
        Door(path_of(server)) as stranger,
        pytest.raises(Unavailable, match="expecting key 'admin'"),
    ):
        stranger.load("doubled")


def test_where_nobody_listens_it_says_so(server: Server, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="No such file"):
        Door(f"{tmp_path}/door")
    with pytest.raises(Unavailable, match="not a socket"):
        Door(str(server.log))
    closed = opened(server)
    closed.close()
    with pytest.raises(Unavailable, match="connection to the server is closed"):
        closed.metadata()
    assert not closed.live


def test_it_needs_nothing_of_the_server_but_its_protocol(server: Server) -> None:
    code = f"""
import sys, zmqtriton
with zmqtriton.Door({path_of(server)!r}) as door:
    print(next(door.model("identity_fp32").infer(inputs={{"INPUT0": [2]}})).outputs["OUTPUT0"][0])
print([name for name in sys.modules if name.startswith("zmqtriton_frontends.gateway")])
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )

    assert process.stdout == "2.0\n[]\n"


_PAGE = (ROOT / "docs" / "door.md").read_text("utf-8")


def test_the_program_of_the_page_works(server: Server) -> None:
    [program] = re.findall(r"```python\n(.+?)```", _PAGE, re.DOTALL)
    program = program.replace("/run/zmqtriton/door", path_of(server))

    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True
    )

    assert process.stdout == "(1.0, 2.0)\n"


#: What the program needs of libzmq's header, which only its development package has.
_ZMQ_H = """
#include <stddef.h>
#define ZMQ_DEALER 5
#define ZMQ_SNDMORE 2
void *zmq_ctx_new(void);
int zmq_ctx_term(void *);
void *zmq_socket(void *, int);
int zmq_close(void *);
int zmq_connect(void *, const char *);
int zmq_send(void *, const void *, size_t, int);
int zmq_recv(void *, void *, size_t, int);
"""


def test_the_program_in_c_works(server: Server, tmp_path: Path) -> None:
    compiler = find_tool("cc")
    libraries = list((Path(zmq.__file__).parents[1] / "pyzmq.libs").glob("libzmq*.so*"))
    if not libraries:
        pytest.skip("this pyzmq brings no libzmq of its own")
    [program] = re.findall(r"```c\n(.+?)```", _PAGE, re.DOTALL)
    source = tmp_path / "client.c"
    source.write_text(program.replace("/run/zmqtriton/door", path_of(server)))
    (tmp_path / "zmq.h").write_text(_ZMQ_H)
    built, library = str(tmp_path / "client"), libraries[0]
    words = ["-Wall", "-Werror", f"-I{tmp_path}", str(source), "-o", built, str(library)]
    # the wheel's other libraries lie beside it
    words += [f"-Wl,-rpath,{library.parent}", "-Wl,--allow-shlib-undefined"]
    subprocess.run([compiler, *words], check=True)

    process = subprocess.run([built], capture_output=True, text=True, check=True, timeout=60)

    assert process.stdout == "1 2\n"


def test_the_bytes_of_the_page_are_those_on_the_wire(server: Server) -> None:
    blocks = re.findall(r"\n\n((?:    [0-9a-f]{2}[0-9a-f \n]*\n)+    --\n[0-9a-f ]+\n)", _PAGE)
    request, response = ([bytes.fromhex(f) for f in block.split("--")] for block in blocks)
    with RawDoor(path_of(server)) as client:
        client.socket.send_multipart(request)

        assert response == client.socket.recv_multipart()


def test_what_is_open_fails_when_the_door_dies_and_the_next_is_found(
    server: Server, door: Door
) -> None:
    inputs: dict[str, Any] = {"COUNT": [10**6], "DELAY_US": [1000]}
    stream = iter(door.model("tokens").infer(inputs=inputs))
    next(stream)
    [pid] = server.pids()["door"]

    os.kill(pid, signal.SIGKILL)

    last = [response.error for response in stream][-1]
    assert isinstance(last, Unavailable)
    assert "connection to the server was lost" in last.text
    eventually(lambda: door.live, 30)
    [response] = door.model("identity_fp32").infer(inputs={"INPUT0": [3]})
    assert response.outputs["OUTPUT0"].tolist() == [3]


def test_a_program_may_end_with_an_open_door_and_a_request_in_a_cycle(server: Server) -> None:
    program = f"""
import gc, zmqtriton
gc.disable()  # the interpreter finds the cycle at its very end
door = zmqtriton.Door({path_of(server)!r})
asked = door.model("identity_fp32").infer(inputs={{"INPUT0": [1.0]}})
asked.cycle = door._conversation.cycle = [asked, door]
del asked, door
"""

    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (ended.returncode, ended.stderr) == (0, "")
