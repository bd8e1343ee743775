"""Functions by chance on a real server: plain JSON, binary HTTP, gRPC and a call agree."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client

from tests.support.server import Server
from zmqtriton_extras.functions.interface import interface_of
from zmqtriton_extras.functions.tests.generated import Generated, as_json, functions
from zmqtriton_extras.functions.tests.test_generated import direct, tensor_of

pytestmark = pytest.mark.system

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("generated")
    options = ("--model-control-mode=explicit",)
    with Server(directory, options=options, frontends=("grpc",)) as server:
        yield server


class Module:
    """The functions of a source, called as plain ones."""

    def __init__(self, source: str) -> None:
        self.__dict__["__name__"] = "generated"
        exec(source, self.__dict__)


def asked(client: Any, library: Any, model: str, tensors: dict[str, Any]) -> dict[str, Any]:
    """The outputs for tensors, by tritonclient."""
    inputs = []
    for name, (array, datatype) in tensors.items():
        inputs.append(library.InferInput(name, list(array.shape), datatype))
        inputs[-1].set_data_from_numpy(array)
    answer = client.infer(model, inputs)
    response = answer.get_response()
    rows = response["outputs"] if isinstance(response, dict) else response.outputs
    names = [row["name"] if isinstance(row, dict) else row.name for row in rows]
    return {name: answer.as_numpy(name) for name in names}


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(generated=functions())
def test_all_protocols_agree(server: Server, generated: Generated) -> None:
    name = f"g{next(_numbers)}"
    version = server.repository / name / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(generated.source)
    assert 200 == server.request_json(f"/v2/repository/models/{name}/load", {})[0]
    config = server.request_json(f"/v2/models/{name}/config")[1]
    kinds = {each["name"]: each for each in config["input"]}
    interface = interface_of(config)
    assert interface is not None
    module = Module(generated.source)
    clients = [
        (http_client.InferenceServerClient(server.url.removeprefix("http://")), http_client),
        (grpc_client.InferenceServerClient(server.grpc_address), grpc_client),
    ]

    for request in generated.requests:
        expected = direct(module, generated, request)
        document = {n: as_json(v) for n, v in request.items()}
        assert (200, expected) == server.request_json(f"/{name}", document)
        tensors = {
            n: (
                tensor_of(v, kinds[n], has_batches=generated.has_batches),
                kinds[n]["data_type"].removeprefix("TYPE_").replace("STRING", "BYTES"),
            )
            for n, v in request.items()
        }
        for client, library in clients:
            outputs = asked(client, library, name, tensors)
            assert expected == json.loads(interface.write(outputs))

    for client, _ in clients:
        client.close()
    assert 200 == server.request_json(f"/v2/repository/models/{name}/unload", {})[0]
