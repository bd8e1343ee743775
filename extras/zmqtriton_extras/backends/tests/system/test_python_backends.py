"""Backends written in Python: users' own, and those that come with the server to test clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as triton
from tritonclient.utils import np_to_triton_dtype

from tests.support.server import ROOT, Server
from zmqtriton_extras.backends.tests.system.serving import DESPITE_FAILURES

SQUARE = ROOT / "extras" / "zmqtriton_extras" / "backends" / "square" / "model.py"
pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        options=(
            "--backend-directory=@DIRECTORY@/s/backends",
            "--backend-config=scale,offset=5",
            "--backend-config=default-max-batch-size=8",
            *DESPITE_FAILURES,
        ),
        frontends=("grpc",),
    ),
]
#: Multiplies by what the model's file says, and adds what the command line says.
SCALE = """
import json

import numpy as np
import triton_python_backend_utils as pb_utils

from sums import add


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(int(pb_utils.get_backend_settings()["default-max-batch-size"]))
        config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "TOLD", "data_type": "TYPE_STRING", "dims": [1]})
        return config

    def initialize(self, args):
        with open(pb_utils.get_model_dir() + "/factor.json") as file:
            self.factor = json.load(file)
        self.offset = int(pb_utils.get_backend_settings()["offset"])
        self.told = json.dumps({**args, "at": __file__})

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        [tensor] = request.inputs()
        found = add(tensor.as_numpy() * np.float32(self.factor), self.offset)
        told = np.array([[self.told]] * len(found), dtype=np.object_)
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("OUT", found), pb_utils.Tensor("TOLD", told)]
        )
"""
IDENTITY = """
name: "identity" backend: "identity" max_batch_size: 4
input [ { name: "INPUT0" data_type: TYPE_STRING dims: [ -1 ] },
        { name: "INPUT1" data_type: TYPE_BF16 dims: [ 2 ] optional: true } ]
output [ { name: "OUTPUT0" data_type: TYPE_STRING dims: [ -1 ] },
         { name: "OUTPUT1" data_type: TYPE_BF16 dims: [ 2 ] } ]
"""


SUMS = """max_batch_size: 4
input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
"""
START = '{ name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] }'
READY = '{ name: "READY" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } ] }'
END = '{ name: "END" control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] }'
NUMBER = '{ name: "CORRID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] }'
COUNTDOWN = """backend: "iterative_sequence" model_transaction_policy { decoupled: true }
sequence_batching { iterative_sequence: true }
parameters { key: "execute_delay_ms" value { string_value: "1" } }
"""


def sums(backend: str, *controls: str, more: str = "") -> str:
    listed = ", ".join(controls)
    return f'{SUMS} backend: "{backend}" sequence_batching {{ {more} control_input [ {listed} ] }}'


def write(server: Server, name: str, config: str, **files: str) -> Path:
    """A model with one version, which has these files."""
    version = server.repository / name / "1"
    version.mkdir(parents=True)
    if config:
        (server.repository / name / "config.pbtxt").write_text(config)
    for file, text in files.items():
        (version / file.replace("_json", ".json").replace("_py", ".py")).write_text(text)
    return version


def write_backend(server: Server, name: str, file: str, text: str) -> None:
    directory = server.directory / "backends" / name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / file).write_text(text)


def prepare(server: Server) -> None:
    write_backend(server, "scale", "model.py", SCALE)
    write_backend(server, "scale", "sums.py", "def add(a, b): return a + a.dtype.type(b)\n")
    # Of the same name as one that comes with the server.
    write_backend(server, "square", "model.py", SCALE)
    write_backend(server, "square", "sums.py", "")
    elsewhere = SCALE.replace('["offset"]', '.get("offset", 7)')
    write_backend(server, "named", "other.py", elsewhere)
    write_backend(server, "named", "sums.py", "def add(a, b): return a - a.dtype.type(b)\n")
    write_backend(server, "growing", "model.py", elsewhere)
    write_backend(server, "growing", "sums.py", "def add(a, b): return a\n")
    write(server, "grown", 'backend: "growing"', factor_json="2")
    write(server, "scaled", 'backend: "scale"', factor_json="3")
    write(server, "runtime", 'backend: "scale" runtime: "model.py"', factor_json="2")
    write(server, "other_file", 'backend: "named" runtime: "other.py"', factor_json="2")
    write(server, "no_file", 'backend: "scale"')
    write(server, "no_runtime", 'backend: "scale" runtime: "libtriton_scale.so"', factor_json="2")
    write(server, "replaced", 'backend: "square"', factor_json="2")
    write(server, "identity", IDENTITY)
    write(server, "repeat", 'backend: "repeat"')
    write(server, "squared", 'backend: "squares"')
    write(server, "summed", sums("sequence", START, READY))
    write(server, "unstarted", sums("sequence", READY))
    write(server, "counted", COUNTDOWN + SUMS)
    everything = (START, END, READY, NUMBER)
    write(server, "summed_oldest", sums("dyna_sequence", *everything, more="oldest { }"))
    write_backend(server, "squares", "model.py", SQUARE.read_text("utf-8"))
    wrong = IDENTITY.replace('name: "identity"', "").replace("OUTPUT1", "OUTPUT2")
    write(server, "unpaired", wrong)


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Any]:
    with triton.InferenceServerClient(server.url.removeprefix("http://")) as client:
        yield client


def scaled(client: Any, model: str, values: list[float]) -> tuple[list[float], dict[str, str]]:
    """Return what OUT says, and what `initialize` was given."""
    tensor = triton.InferInput("IN", [1, len(values)], "FP32")
    tensor.set_data_from_numpy(np.array([values], dtype=np.float32))
    answer = client.infer(model, [tensor])
    arguments: dict[str, str] = json.loads(answer.as_numpy("TOLD")[0, 0])
    return answer.as_numpy("OUT")[0].tolist(), arguments


def streamed(server: Server, model: str, **inputs: Any) -> list[Any]:
    """Return all responses of one request over a stream of gRPC."""
    tensors = []
    for name, array in inputs.items():
        datatype = np_to_triton_dtype(array.dtype)
        tensors.append(grpc_client.InferInput(name, list(array.shape), datatype))
        tensors[-1].set_data_from_numpy(array)
    responses: list[Any] = []
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(lambda result, error: responses.append(error or result))
        client.async_stream_infer(model, tensors)
        client.stop_stream()
    return responses


def reason(client: Any, model: str) -> str:
    (entry,) = [m for m in client.get_model_repository_index() if m["name"] == model]
    return str(entry["reason"])


@pytest.mark.row("K20", "--backend-directory")
def test_a_backend_of_the_directory_runs_a_model_that_has_no_code(
    server: Server, client: Any
) -> None:
    values, arguments = scaled(client, "scaled", [1.0, 2.0])

    assert values == [8.0, 11.0]
    assert str(server.directory / "backends" / "scale" / "model.py") == arguments.pop("at")
    config = json.loads(arguments.pop("model_config"))
    assert (config["backend"], config["max_batch_size"]) == ("scale", 8)
    assert {
        "model_instance_kind": "CPU",
        "model_instance_name": "scaled_0",
        "model_instance_device_id": "0",
        "model_repository": str(server.repository / "scaled"),
        "model_version": "1",
        "model_name": "scaled",
    } == arguments


@pytest.mark.row("K21")
@pytest.mark.smoke
def test_a_runtime_names_the_file_of_the_backend(client: Any) -> None:
    assert scaled(client, "runtime", [1.0])[0] == [7.0]
    assert scaled(client, "other_file", [1.0])[0] == [-5.0]
    assert (
        "unable to find backend library for backend 'scale', try specifying runtime on the model "
        "configuration." in reason(client, "no_runtime")
    )


@pytest.mark.row("K20")
def test_a_backend_s_error_is_the_reason_of_its_model(client: Any) -> None:
    assert "factor.json" in reason(client, "no_file")


@pytest.mark.row("K20")
def test_another_code_of_a_backend_is_served_after_a_load(server: Server, client: Any) -> None:
    assert scaled(client, "grown", [2.0])[0] == [4.0]

    write_backend(server, "growing", "sums.py", "def add(a, b): return a * 100\n")
    client.load_model("grown")

    assert scaled(client, "grown", [2.0])[0] == [400.0]


@pytest.mark.row("I10")
def test_each_backend_of_a_model_stands_in_the_table(server: Server) -> None:
    lines = [line for line in server.log_text().splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in lines if "cmdline" in line]
    rows_by_name = {name: (path, config) for name, path, config in rows}

    own, ours = str(server.directory / "backends"), str(SQUARE.parents[1])
    assert f"{own}/scale/model.py" == rows_by_name["scale"][0]
    assert f"{own}/named/other.py" == rows_by_name["named"][0]
    assert f"{ours}/identity/model.py" == rows_by_name["identity"][0]
    assert {"offset": "5", "default-max-batch-size": "8"}.items() <= (
        json.loads(rows_by_name["scale"][1])["cmdline"].items()
    )


def test_a_backend_of_the_directory_goes_before_one_of_ours(client: Any) -> None:
    assert "cannot import name 'add' from 'sums'" in reason(client, "replaced")


@pytest.mark.row("K09")
def test_identity_answers_with_its_inputs(server: Server, client: Any) -> None:
    words = np.array([[b"a", b"\xff"], [b"", b"c"]], dtype=np.object_)
    inputs = [
        triton.InferInput("INPUT0", [2, 2], "BYTES"),
        triton.InferInput("INPUT1", [2, 2], "BF16"),
    ]
    inputs[0].set_data_from_numpy(words)
    numbers = np.array([[0.5, 1], [2, 3]], dtype=ml_dtypes.bfloat16)
    inputs[1].set_data_from_numpy(numbers)

    both, one = client.infer("identity", inputs), client.infer("identity", inputs[:1])

    assert words.tolist() == both.as_numpy("OUTPUT0").tolist() == one.as_numpy("OUTPUT0").tolist()
    assert numbers.tolist() == both.as_numpy("OUTPUT1").tolist()
    assert one.as_numpy("OUTPUT1") is None
    assert "has no output OUTPUT1 for its input 'INPUT1'" in reason(client, "unpaired")


@pytest.mark.row("K10")
def test_repeat_answers_each_element(server: Server) -> None:
    responses = streamed(
        server,
        "repeat",
        IN=np.array([4, 2, 0, 1], dtype=np.int32),
        DELAY=np.array([1, 2, 0, 1], dtype=np.uint32),
        WAIT=np.array([5], dtype=np.uint32),
    )

    answers = [(int(f.as_numpy("OUT")[0]), int(f.as_numpy("IDX")[0])) for f in responses]
    assert answers == [(4, 0), (2, 1), (0, 2), (1, 3)]


@pytest.mark.row("K10")
def test_square_answers_as_often_as_it_is_told(server: Server) -> None:
    responses = streamed(server, "squared", IN=np.array([3], dtype=np.int32))

    assert [int(each.as_numpy("OUT")[0]) for each in responses] == [3, 3, 3]


def said_of_two(server: Server, model: str) -> tuple[list[int], list[int]]:
    """Return what two sequences of one stream are answered, as clients' examples ask them."""
    responses: list[Any] = []
    sequences = {1001: [11, 7, 5, 0], 1002: [-1, -2, -3, 100]}
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(lambda result, error: responses.append(error or result))
        for place in range(4):
            for number, values in sequences.items():
                tensor = grpc_client.InferInput("INPUT", [1, 1], "INT32")
                tensor.set_data_from_numpy(np.array([[values[place]]], dtype=np.int32))
                client.async_stream_infer(
                    model,
                    [tensor],
                    request_id=f"{number}_{place}",
                    sequence_id=number,
                    sequence_start=place == 0,
                    sequence_end=place == 3,
                )
        client.stop_stream()
    answers = {one.get_response().id: one.as_numpy("OUTPUT").item() for one in responses}
    first, second = ([answers[f"{number}_{place}"] for place in range(4)] for number in sequences)
    return first, second


@pytest.mark.row("K11")
def test_sequences_are_summed_and_the_number_added_at_the_end(server: Server, client: Any) -> None:
    first, second = [11, 18, 23, 23], [-1, -3, -6, 94]

    assert (first, second) == said_of_two(server, "summed")
    with_numbers = [*first[:3], first[3] + 1001], [*second[:3], second[3] + 1002]
    assert with_numbers == said_of_two(server, "summed_oldest")
    assert "'START' and 'READY' must be configured as the control inputs" in (
        reason(client, "unstarted")
    )


@pytest.mark.row("K11")
def test_a_request_is_executed_until_it_has_counted_down(server: Server) -> None:
    responses = streamed(server, "counted", INPUT=np.array([[3]], dtype=np.int32))

    assert [int(each.as_numpy("OUTPUT").item()) for each in responses] == [2, 1, 0]
