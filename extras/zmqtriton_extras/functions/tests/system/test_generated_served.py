"""Functions by chance on a real server: a call, and requests by each protocol, agree.

Fifty stand in a file, and are loaded and unloaded together, so that few processes run at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
import zmq
from tritonclient.utils import InferenceServerException

import zmqtriton
from tests.support.server import Server
from zmqtriton_extras.functions.backend.documents import Documents
from zmqtriton_extras.functions.interface import Interface, interface_of
from zmqtriton_extras.functions.tests.generated import (
    HEAD,
    Generated,
    Plain,
    exactly,
    generate,
    tensor_of,
)

pytestmark = pytest.mark.system

_OF_A_FILE = 50
#: Loads at a time.
_LOADERS = 4


#: Arrays by the names of inputs, with their datatypes.
Tensors = dict[str, tuple[Any, str]]


class Model(NamedTuple):
    """A function that is served."""

    name: str
    generated: Generated
    interface: Interface
    inputs: dict[str, dict[str, Any]]

    def tensors(self, request: dict[str, Any]) -> Tensors:
        """The arrays of arguments."""
        has_batches, inputs = self.generated.has_batches, self.inputs
        return {
            n: (
                tensor_of(
                    v, inputs[n], has_batches=has_batches, is_document=n in self.generated.nested
                ),
                inputs[n]["data_type"].removeprefix("TYPE_").replace("STRING", "BYTES"),
            )
            for n, v in request.items()
        }

    def wrong_tensors(self) -> Iterator[Tensors]:
        """Iterate over requests that are wrong in one argument."""
        generated = self.generated
        good = self.tensors(generated.requests[0])
        for name, (array, datatype) in good.items():
            kind = self.interface.parameters[name]
            others = {n: each for n, each in good.items() if n != name}
            if name in self.interface.input["required"]:
                yield others
            other = "INT16" if datatype == "FP64" else "FP64"
            dtype = http_client.triton_to_np_dtype(other)
            yield {**others, name: (np.zeros(array.shape, dtype), other)}
            yield {**others, name: (np.stack([array, array], -1), datatype)}
            if kind.schema == {"type": "string"} or isinstance(kind, Documents):
                yield {**others, name: (np.full(array.shape, b"\xff", object), datatype)}
            wrong = generated.wrong.get(name)
            if isinstance(kind, Documents) and name in generated.wrong:
                text = json.dumps(wrong).encode()
                yield {**others, name: (np.full(array.shape, text, object), datatype)}

    def document(self, outputs: dict[str, Any]) -> str:
        return exactly(json.loads(self.interface.write(outputs)))


class Clients:
    """A client of each protocol; each answers with the documents of all responses."""

    def __init__(self, server: Server, stack: ExitStack) -> None:
        self._server = server
        url = server.url.removeprefix("http://")
        self._http = http_client.InferenceServerClient(url)
        self._grpc = grpc_client.InferenceServerClient(server.grpc_address)
        self._connection = stack.enter_context(zmqtriton.connect(str(server.http_port)))
        stack.callback(self._http.close)
        stack.callback(self._grpc.close)

    def ask(self, model: Model, request: dict[str, Any]) -> dict[str, list[str] | None]:
        """The answers by protocol; None for one that cannot carry the arguments."""
        tensors = model.tensors(request)
        answers = {}
        for ask, arguments in (
            (self._plain, request),
            (self._called, request),
            *((ask, tensors) for ask in self._ways_of_tensors(model)),
        ):
            try:
                answers[ask.__name__] = ask(model, arguments)
            except Exception as error:  # noqa: BLE001 - it is a disagreement, too
                answers[ask.__name__] = [repr(error)]
        return answers

    def _ways_of_tensors(self, model: Model) -> list[Callable[[Model, Tensors], list[str] | None]]:
        if model.generated.is_stream:
            return [self._grpc_stream]
        return [self._grpc_stream, self._binary, self._kserve_json, self._grpc_unary]

    def _plain(self, model: Model, request: dict[str, Any]) -> list[str]:
        document = model.generated.document(request)
        answer = self._server.exchange(f"/{model.name}", json.dumps(document).encode())
        assert 200 == answer.status, answer.body
        if not model.generated.is_stream:
            return [exactly(answer.document)]
        events = answer.body.split(b"\n\n")[:-1]
        return [exactly(json.loads(each.removeprefix(b"data: "))) for each in events]

    def _called(self, model: Model, request: dict[str, Any]) -> list[str]:
        answer = getattr(self._connection, model.name)(**request)
        answers = [*answer] if model.generated.is_stream else [answer]
        if model.generated.has_one_output:
            answers = [{"output": each} for each in answers]
        answers = [each._asdict() if hasattr(each, "_asdict") else each for each in answers]
        return [exactly(model.generated.document(each)) for each in answers]

    def _binary(self, model: Model, tensors: Tensors) -> list[str]:
        inputs = _inputs(http_client, tensors)
        answer = self._http.infer(model.name, inputs)
        names = [row["name"] for row in answer.get_response()["outputs"]]
        return [model.document({name: answer.as_numpy(name) for name in names})]

    def _grpc_unary(self, model: Model, tensors: Tensors) -> list[str]:
        return [_of_grpc(model, self._grpc.infer(model.name, _inputs(grpc_client, tensors)))]

    def _grpc_stream(self, model: Model, tensors: Tensors) -> list[str]:
        answers: SimpleQueue[Any] = SimpleQueue()
        self._grpc.start_stream(lambda result, error: answers.put((result, error)))
        inputs = _inputs(grpc_client, tensors)
        self._grpc.async_stream_infer(model.name, inputs, enable_empty_final_response=True)
        documents = []
        try:
            while True:
                result, error = answers.get(timeout=10)
                if error is not None:
                    raise error
                response = result.get_response()
                is_final = response.parameters["triton_final_response"].bool_param
                if not (is_final and model.generated.is_stream):
                    documents.append(_of_grpc(model, result))
                if is_final:
                    return documents
        finally:
            self._grpc.stop_stream()

    def _kserve_json(self, model: Model, tensors: Tensors) -> list[str] | None:
        rows = []
        for name, (array, datatype) in tensors.items():
            data = array.ravel().tolist()
            if datatype == "BYTES":
                try:
                    data = [e if isinstance(e, str) else bytes(e).decode() for e in data]
                except UnicodeDecodeError:
                    return None  # JSON has texts alone
            if datatype == "FP16":
                return None  # as Triton
            rows.append({"name": name, "datatype": datatype, "shape": [*array.shape], "data": data})
        status, document = self._server.infer_json(model.name, *rows)
        if status == 400 and "BYTES data that is not UTF-8" in document["error"]:
            return None  # likewise
        if status != 200:
            raise InferenceServerException(document["error"], str(status))
        outputs = {}
        for row in document["outputs"]:
            dtype = http_client.triton_to_np_dtype(row["datatype"])
            outputs[row["name"]] = _array(row["data"], dtype).reshape(row["shape"])
        return [model.document(outputs)]

    def disagreements(self, plain: Plain, model: Model) -> Iterator[str]:
        """Iterate over what differs between the protocols and a plain call."""
        for request in model.generated.requests:
            expected = plain.answers(model.name, model.generated, request)
            for way, answers in self.ask(model, request).items():
                if answers not in (None, expected):
                    yield f"{way}: {expected} != {answers} for {model.generated}"
        yield from self._not_refused(model)

    def _not_refused(self, model: Model) -> Iterator[str]:
        """Iterate over the ways that take arguments which are wrong."""
        document = model.generated.document(model.generated.requests[0]) | model.generated.wrong
        answer = self._server.exchange(f"/{model.name}", json.dumps(document).encode())
        # a stream may have begun
        is_refused = answer.status in (400, 422) or b'data: {"error"' in answer.body
        if not is_refused:
            yield f"{document} is taken: {answer} for {model.generated}"
        arguments = {**model.generated.requests[0], **model.generated.wrong}
        with suppress(Exception):  # the client's own, or the server's
            yield f"{arguments} are taken: {self._called(model, arguments)}, {model.generated}"
        for tensors in model.wrong_tensors():
            for ask in self._ways_of_tensors(model):
                try:
                    answers = ask(model, tensors)
                except InferenceServerException as error:
                    # a stream's error has no status
                    if str(error.status()) not in ("None", "400", "StatusCode.INVALID_ARGUMENT"):
                        yield f"{ask.__name__}: {error} for {tensors}, {model.generated}"
                else:
                    if answers is not None:
                        yield f"{ask.__name__}: {tensors} are taken: {answers}, {model.generated}"


def _array(data: Any, dtype: Any) -> Any:
    return np.array([each.encode() for each in data] if dtype == np.object_ else data, dtype)


def _inputs(library: Any, tensors: Tensors) -> list[Any]:
    inputs = []
    for name, (array, datatype) in tensors.items():
        inputs.append(library.InferInput(name, list(array.shape), datatype))
        inputs[-1].set_data_from_numpy(array)
    return inputs


def _of_grpc(model: Model, answer: Any) -> str:
    names = [row.name for row in answer.get_response().outputs]
    return model.document({name: answer.as_numpy(name) for name in names})


@pytest.fixture(scope="module", autouse=True)
def zmq_threads() -> None:
    """Start libzmq's threads, which stay for the life of the process."""
    zmq.Context.instance().socket(zmq.SUB).close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("generated")
    options = ("--model-control-mode=explicit",)
    with Server(directory, options=options, frontends=("grpc",)) as server:
        yield server


@pytest.fixture(scope="module")
def clients(server: Server) -> Iterator[Clients]:
    """Clients that have opened what they keep as long as the server."""
    with ExitStack() as stack:
        clients = Clients(server, stack)
        assert [] == [*disagreements(server, clients, {"first": generate(1)[0]})]
        yield clients


@pytest.mark.parametrize(
    "count",
    [
        40,
        pytest.param(
            1000,
            marks=[
                pytest.mark.long(
                    "extras/functions/system/test_generated_served.py::test_all_protocols_agree"
                ),
                pytest.mark.timeout(1800),
            ],
        ),
    ],
)
def test_all_protocols_agree(server: Server, clients: Clients, count: int) -> None:
    drawn = [(f"g{count}_{number}", each) for number, each in enumerate(generate(count))]
    assert count <= len(drawn)
    wrong = [
        text
        for begin in range(0, len(drawn), _OF_A_FILE)
        for text in disagreements(server, clients, dict(drawn[begin : begin + _OF_A_FILE]))
    ]
    assert not wrong, "\n".join(wrong)


def disagreements(
    server: Server, clients: Clients, functions: dict[str, Generated]
) -> Iterator[str]:
    """Iterate over what is wrong with functions that stand in one file."""
    source = HEAD + "".join(each.source(name) for name, each in functions.items())
    plain = Plain(source)
    for name in functions:
        server.write_model(name, "", source)
    with ThreadPoolExecutor(_LOADERS) as threads:
        for model in threads.map(lambda item: load(server, *item), functions.items()):
            yield from clients.disagreements(plain, model)
            path = f"/v2/repository/models/{model.name}/unload"
            assert 200 == server.request_json(path, {})[0]


def load(server: Server, name: str, generated: Generated) -> Model:
    status, document = server.request_json(f"/v2/repository/models/{name}/load", {})
    assert 200 == status, (document, generated.text)
    config = server.request_json(f"/v2/models/{name}/config")[1]
    interface = interface_of(config)
    assert interface is not None
    return Model(name, generated, interface, {each["name"]: each for each in config["input"]})
