"""Arrays of a program that has left its server, whose fork goes on, or whose instance was given up.

Each looks again when other clients have had the memory that the array was in.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zmqtriton
from tests.support.server import Server as Repository
from tests.support.waiting import eventually
from zmqtriton.embedded.connection import Connection
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_stub.api.inference import InferenceResponse
from zmqtriton_stub.api.tensor import Tensor

pytestmark = [
    pytest.mark.system,
    pytest.mark.large_tensors,
    pytest.mark.usefixtures("zmq_threads"),
]

_LENGTH = 250_000
_KEPT = 6
_CONFIG: dict[str, Any] = {
    "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}],
}
_COPIES = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy() + 0)])
            for request in requests
        ]
"""
_TENSORS = """
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
#: A stream of so many numbers as its input says from the first one on; that from 0 on waits for the
#: test before its last ones.
_STREAM = f"""
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        first, count = (int(number) for number in requests[0].inputs()[0].as_numpy())
        sender = requests[0].get_response_sender()
        for number in range(count):
            while not first and number == {_KEPT} and not os.path.exists("PATH"):
                time.sleep(0.002)
            array = np.full({_LENGTH}, first + number, np.float32)
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zmqtriton.Server]:
    repository = Repository(tmp_path_factory.mktemp("leaving") / "s")
    repository.write_model("copies", _TENSORS, _COPIES)
    with zmqtriton.Server(repository.repository, model_control_mode="explicit") as server:
        server.load("copies")
        yield server


def ask(connection: Connection, number: int, model: str = "copies") -> Any:
    inputs = {"IN": np.full(_LENGTH, number, np.float32)}
    (response,) = connection.model(model).infer(inputs=inputs)
    return response.outputs["OUT"]


def wrong(answers: list[Any]) -> int:
    """Return how many answers are not those to 100, 101 and so on."""
    return sum(not (array == 100 + number).all() for number, array in enumerate(answers))


def guests(server: zmqtriton.Server) -> int:
    return sum(row["role"] == "guest" for row in server.control("status")["processes"])


def _close(connection: Connection) -> None:
    connection.close()


def _leave_with(connection: Connection) -> None:
    with connection:
        pass


@pytest.mark.parametrize("leave", [_close, _leave_with])
def test_answers_stay_when_their_program_leaves(
    server: zmqtriton.Server, leave: Callable[[Connection], None]
) -> None:
    connection = zmqtriton.connect(path=server.runtime_directory)
    kept = [ask(connection, 100 + number) for number in range(_KEPT)]

    leave(connection)
    eventually(lambda: guests(server) == 1, 30, "the end of the guest")
    others = [ask(server, number) for number in range(2 * _KEPT)]

    assert 0 == wrong(kept)
    assert [*range(2 * _KEPT)] == [array[0] for array in others]
    # and the server has its memory back
    del others
    eventually(lambda: not server.control("status")["held"], 30, "the memory of the model")


def test_answers_stay_when_their_server_ends_and_serves_others_meanwhile(tmp_path: Path) -> None:
    server = Repository(
        tmp_path / "s", options=[f"--runtime-directory={tmp_path}/run"], frontends=()
    )
    go_on = server.scratch / "go"
    decoupled = f"{_TENSORS}\nmodel_transaction_policy {{ decoupled: true }}"
    server.write_model("numbers", decoupled, _STREAM.replace("PATH", str(go_on)))
    with server:
        leaving, staying = (zmqtriton.connect(path=f"{tmp_path}/run") for _ in range(2))
        kept = [*_numbers(leaving, 100, _KEPT)]
        stream = _numbers(staying, 0, 5 * _KEPT)
        others = [next(stream) for _ in range(_KEPT)]

        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: not leaving.live, 30, "the end of the connection")
        go_on.touch()
        others += stream

        assert [*range(5 * _KEPT)] == [array[0] for array in others]
        assert 0 == wrong(kept)
        staying.close()


def _numbers(connection: Connection, first: int, count: int) -> Iterator[Any]:
    inputs = {"IN": np.array([first, count], np.float32)}
    for response in connection.model("numbers").infer(inputs=inputs):
        if response.outputs:
            yield response.outputs["OUT"]


def test_answers_stay_when_the_server_leaves_their_program(server: zmqtriton.Server) -> None:
    connection = zmqtriton.connect(path=server.runtime_directory)
    kept = [ask(connection, 100 + number) for number in range(_KEPT)]

    # as a fault of the machine would: nothing public ends a connection to the broker alone
    dealer = connection._guest.gateway._broker._dealer
    assert dealer is not None
    with socket.socket(fileno=os.dup(dealer.fileno())) as broken:
        broken.shutdown(socket.SHUT_RDWR)
    eventually(lambda: guests(server) == 1 and not connection.live, 60, "the end of the guest")
    others = [ask(server, number) for number in range(2 * _KEPT)]

    assert [*range(2 * _KEPT)] == [array[0] for array in others]
    assert 0 == wrong(kept)
    connection.close()


def test_a_fork_of_a_program_keeps_its_answers(server: zmqtriton.Server) -> None:
    with zmqtriton.connect(path=server.runtime_directory) as connection:
        kept = [ask(connection, 100 + number) for number in range(_KEPT)]
        reader, writer = socket.socketpair()

        child = os.fork()
        if not child:
            reader.recv(1)
            os._exit(wrong(kept))
        del kept
        again = [ask(connection, number) for number in range(2 * _KEPT)]
        writer.send(b".")

        assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert [*range(2 * _KEPT)] == [array[0] for array in again]
        reader.close()
        writer.close()


def test_an_instance_that_was_given_up_keeps_what_it_reads(server: zmqtriton.Server) -> None:
    go_on, looks = threading.Event(), []

    class Hangs:
        def execute(self, requests: list[Any]) -> list[Any]:
            array = requests[0].inputs()[0].as_numpy()
            if array[0] == 100:
                go_on.wait(60)
                looks.append(wrong([array]))
            return [InferenceResponse([Tensor("OUT", array)])]

    limit = {"parameters": {"max_execution_seconds": {"string_value": "1"}}}
    server.bind("hangs", Hangs, config={**_CONFIG, **limit})
    with zmqtriton.connect(path=server.runtime_directory) as other:
        with pytest.raises(ZmqTritonError, match="max_execution_seconds"):
            ask(other, 100, "hangs")
        others = [ask(other, number) for number in range(_KEPT)]

        go_on.set()
        eventually(lambda: bool(looks), 30, "the hanging thread")

        assert [0] == looks
        assert [*range(_KEPT)] == [array[0] for array in others]
    server.unload("hangs")
