"""Every framework's files on a real server: batched, in ensembles, reloaded under load, broken.

The same tests for all of them; `make test` has the small ones, with KIND=frameworks the others.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client

from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_extras.backends.tests.system.model_files import KINDS, WIDTH, Kind
from zmqtriton_extras.backends.tests.system.serving import DESPITE_FAILURES

pytestmark = [pytest.mark.system, pytest.mark.frameworks]

ONE = "instance_group [ { kind: KIND_CPU count: 1 } ]\n"
#: Executed when four have come, or never.
FOUR = "dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 60000000 }\n"
WARM_PAIR = """instance_group [ {{ kind: KIND_CPU count: 2 }} ]
dynamic_batching {{ max_queue_delay_microseconds: 500 }}
model_warmup {{ name: "w" batch_size: 2
  inputs {{ key: "{input}" value {{ data_type: TYPE_FP32 dims: [ 3 ] random_data: true }} }} }}
"""
PYTHON = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        found = []
        for request in requests:
            [tensor] = request.inputs()
            moved = pb_utils.Tensor("OUT", tensor.as_numpy() + 1)
            found.append(pb_utils.InferenceResponse([moved]))
        return found
"""
PLUS_ONE = """backend: "python" max_batch_size: 8
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
ENSEMBLE = """platform: "ensemble" max_batch_size: 8
input [ {{ name: "A" data_type: TYPE_FP32 dims: [ 3 ] }} ]
output [ {{ name: "D" data_type: TYPE_FP32 dims: [ 3 ] }} ]
ensemble_scheduling {{ step [
  {{ model_name: "plus_one" model_version: -1
    input_map {{ key: "IN" value: "A" }} output_map {{ key: "OUT" value: "B" }} }},
  {{ model_name: "steady" model_version: -1
    input_map {{ key: "{input}" value: "B" }} output_map {{ key: "{output}" value: "C" }} }},
  {{ model_name: "plus_one" model_version: -1
    input_map {{ key: "IN" value: "C" }} output_map {{ key: "OUT" value: "D" }} }} ] }}
"""
Ask = Callable[..., Any]


INSTALLED = [kind for kind in KINDS if kind.is_installed]
#: Of the first tier is one framework; each has a test of its own there.
CASES = (
    *INSTALLED[:1],
    *(
        pytest.param(
            kind,
            marks=pytest.mark.long(
                "extras/backends/system/test_model_files.py::test_it_answers_over_http_and_grpc",
                "extras/backends/system/test_fil.py::test_a_file_and_a_backend_are_enough",
            ),
        )
        for kind in INSTALLED[1:]
    ),
)


@pytest.fixture(scope="module", params=CASES, ids=lambda kind: kind.backend)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


def add(server: Server, name: str, version: Path, config: str) -> Path:
    """A model with the files of a version directory."""
    model = server.repository / name
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(config)
    put(version, model)
    return model / "1"


def put(version: Path, model: Path) -> None:
    """Put files into a model as those do who know that it is running: by renaming them."""
    for path in sorted(path for path in version.rglob("*") if path.is_file()):
        target = model / "1" / path.relative_to(version)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}")
        part.write_bytes(path.read_bytes())
        os.replace(part, target)


@pytest.fixture(scope="module")
def server(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp(kind.backend)
    server = Server(directory / "s", options=DESPITE_FAILURES, frontends=("grpc",))
    kind.write((directory / "twice", 2.0), (directory / "seven", 7.0))
    names = {"input": kind.input, "output": kind.output}
    add(server, "steady", directory / "twice", kind.tensors + ONE)
    add(server, "batched", directory / "twice", kind.tensors + ONE + FOUR)
    add(server, "pair", directory / "twice", kind.tensors + WARM_PAIR.format(**names))
    add(server, "plus_one", directory / "none", PLUS_ONE)
    (server.repository / "plus_one" / "1" / "model.py").write_text(PYTHON)
    add(server, "pipeline", directory / "none", ENSEMBLE.format(**names))
    add(server, "missing", directory / "none", kind.tensors)
    for name, breakage in kind.breakages.items():
        version = add(server, name, directory / "twice", kind.tensors + ONE)
        breakage.apply(version / (breakage.file or kind.file))
    with server:
        yield server


@pytest.fixture(scope="module")
def ask(server: Server) -> Iterator[Ask]:
    """Asks a model over HTTP, or over gRPC if told so, and returns its answer as lists."""
    with grpc_client.InferenceServerClient(server.grpc_address) as grpc:

        def answer(rows: Any, model: str, names: tuple[str, str], is_grpc: bool = False) -> Any:
            shape = list(rows.shape)
            if is_grpc:
                tensor = grpc_client.InferInput(names[0], shape, "FP32")
                tensor.set_data_from_numpy(rows)
                return grpc.infer(model, [tensor]).as_numpy(names[1]).tolist()
            # not the client, which threads cannot share
            data = {"name": names[0], "datatype": "FP32", "shape": shape, "data": rows.tolist()}
            status, answer = server.request_json(f"/v2/models/{model}/infer", {"inputs": [data]})
            assert status == 200, answer
            [output] = [one for one in answer["outputs"] if one["name"] == names[1]]
            return np.reshape(output["data"], output["shape"]).tolist()

        yield answer


def rows(*firsts: float) -> Any:
    """A row for each number, which begins with it."""
    return np.array([[first, -1, 0.5] for first in firsts], dtype=np.float32)


def reason(server: Server, model: str) -> str:
    _, index = server.request_json("/v2/repository/index", {})
    (entry,) = [one for one in index if one["name"] == model]
    return str(entry.get("reason", ""))


@pytest.mark.row("K01", "K03", "K04")
@pytest.mark.parametrize("is_grpc", [False, True], ids=["http", "grpc"])
def test_it_answers_over_http_and_grpc(kind: Kind, ask: Ask, is_grpc: bool) -> None:
    inputs = rows(1, -2, 3)

    outputs = ask(inputs, "steady", (kind.input, kind.output), is_grpc)

    assert kind.expected(inputs, 2.0) == outputs


@pytest.mark.row("K01", "K03", "K05")
def test_requests_of_several_clients_are_one_batch(kind: Kind, server: Server, ask: Ask) -> None:
    each = [rows(1), rows(-2), rows(3, 4)]
    names = (kind.input, kind.output)

    with ThreadPoolExecutor(len(each)) as clients:
        futures = [
            clients.submit(ask, one, "batched", names, place == 0) for place, one in enumerate(each)
        ]
        outputs = [one.result() for one in futures]

    assert [kind.expected(one, 2.0) for one in each] == outputs
    statistics = server.statistics("batched")
    assert (statistics["inference_count"], statistics["execution_count"]) == (4, 1)


@pytest.mark.row("K04", "K05", "K07")
def test_two_warm_instances_keep_answers_apart(kind: Kind, server: Server, ask: Ask) -> None:
    each = [rows(*range(number, number + 1 + number % 3)) for number in range(1, 41)]

    with ThreadPoolExecutor(4) as clients:
        outputs = list(clients.map(lambda one: ask(one, "pair", (kind.input, kind.output)), each))

    assert [kind.expected(one, 2.0) for one in each] == outputs
    assert len(server.stub_pids("pair")) == 2


@pytest.mark.row("K01", "K04", "K07")
@pytest.mark.parametrize("is_grpc", [False, True], ids=["http", "grpc"])
def test_it_is_a_step_between_models_in_python(kind: Kind, ask: Ask, is_grpc: bool) -> None:
    inputs = rows(1, -2)

    expected = [[value + 1 for value in row] for row in kind.expected(inputs + 1, 2.0)]

    assert expected == ask(inputs, "pipeline", ("A", "D"), is_grpc)


@pytest.mark.row("K03", "K05", "K07")
def test_another_file_is_served_after_a_reload_under_load(
    kind: Kind, server: Server, ask: Ask
) -> None:
    inputs = rows(1)
    before, after = kind.expected(inputs, 2.0), kind.expected(inputs, 7.0)
    model = server.repository / "steady"
    answers_by_way: list[list[Any]] = [[], []]
    is_over = threading.Event()

    def go_on(is_grpc: bool) -> None:
        while not is_over.is_set():
            answers_by_way[is_grpc].append(
                ask(inputs, "steady", (kind.input, kind.output), is_grpc)
            )

    def has_asked(least: list[int]) -> bool:
        return all(
            len(answers) > count for answers, count in zip(answers_by_way, least, strict=True)
        )

    try:
        with ThreadPoolExecutor(2) as clients:
            asking = [clients.submit(go_on, is_grpc) for is_grpc in (False, True)]
            try:
                eventually(partial(has_asked, [5, 5]), 60, "requests before the reload")
                put(server.directory.parent / "seven", model)
                assert server.control_model("load", "steady") == ""
                # those that were on their way
                least = [len(answers) + 2 for answers in answers_by_way]
                eventually(partial(has_asked, least), 60, "requests after")
            finally:
                is_over.set()
            [one.result() for one in asking]
    finally:
        put(server.directory.parent / "twice", model)
        assert server.control_model("load", "steady") == ""

    for answers in answers_by_way:
        kinds = [before] * answers.count(before) + [after] * answers.count(after)
        assert kinds == answers
        assert after == answers[-1]


@pytest.mark.row("K03", "K05", "K07")
def test_a_broken_file_has_the_framework_s_reason(kind: Kind, server: Server) -> None:
    words = {name: breakage.words for name, breakage in kind.breakages.items()}

    for model, text in {**words, "missing": kind.missing or kind.file}.items():
        text_of_reason = reason(server, model)
        assert text in text_of_reason, model
        assert "\nAt:" not in text_of_reason


def test_what_does_not_fit_is_refused_and_the_model_serves_on(kind: Kind, ask: Ask) -> None:
    wrong = np.ones((1, WIDTH + 1), dtype=np.float32)
    with pytest.raises(Exception, match="unexpected shape for input"):
        ask(wrong, "steady", (kind.input, kind.output))
    with pytest.raises(Exception, match="inference input 'other'"):
        ask(rows(1), "steady", ("other", kind.output))

    assert len(ask(rows(1), "steady", (kind.input, kind.output))) == 1
