"""Writes the client of a new model, and the route that a client may ask instead."""

from __future__ import annotations

import json
import shlex
from urllib.parse import quote

from zmqtriton_standard.tools.new_model.draft import Draft, Kind

#: Default ports of a server.
HTTP_PORT, GRPC_PORT = 8000, 8001
#: Elements of a request that can still be read.
MAX_ELEMENTS = 48

_HEAD = '''\
"""Asks the model {name} of a server: python client_{name}.py [HOST:PORT]

Needs: pip install 'tritonclient[{protocol}]'
"""

{imports}import sys

import numpy as np
import tritonclient.{protocol} as triton

SERVER = sys.argv[1] if len(sys.argv) > 1 else "localhost:{port}"
ARRAYS = {inputs}
TYPES = {types}

client = triton.InferenceServerClient(SERVER)
try:
    client.is_server_live()
except Exception as error:  # at another port something else may answer
    sys.exit(f"no server answers on {{SERVER}}: {{error}}")
inputs = []
for name, array in ARRAYS.items():
    inputs.append(triton.InferInput(name, array.shape, TYPES[name]))
    inputs[-1].set_data_from_numpy(array)
'''
_PLAIN = """\
result = client.infer("{name}", inputs)
for name in [{outputs}]:
    print(name, result.as_numpy(name).tolist())
"""
_SEQUENCE = """\
for first, last in [(True, False), (False, False), (False, True)]:
    result = client.infer(
        "{name}", inputs, sequence_id=7, sequence_start=first, sequence_end=last
    )
    for name in [{outputs}]:
        print(name, result.as_numpy(name).tolist())
"""
_STREAM = """\
responses = queue.Queue()
client.start_stream(lambda result, error: responses.put((result, error)))
client.async_stream_infer("{name}", inputs, enable_empty_final_response=True)
while True:
    result, error = responses.get()
    if error is not None:
        sys.exit(f"error: {{error}}")
    response = result.get_response()
    for name in [{outputs}] if response.outputs else []:
        print(name, result.as_numpy(name).tolist())
    if response.parameters["triton_final_response"].bool_param:
        break
client.stop_stream()
"""
_ROUTES = '''\
"""The routes of {name}: a server with --routes serves them below /models/{name}."""

from zmqtriton.routes import RouteError, route

INPUTS = {inputs}


@route("POST /ask")
async def ask(request, infer):
    """Answer a JSON document of the inputs with one of the outputs."""
    document = request.json()
    if not isinstance(document, dict) or sorted(document) != sorted(INPUTS):
        raise RouteError(400, f"the document must have {{' and '.join(INPUTS)}}")
    outputs = await infer(document)
    return {{name: array.tolist() for name, array in outputs.items()}}
'''
_CLIENT = '''\
"""Asks the route of the model {name} of a server: python client_{name}.py [HOST:PORT]"""

import json
import sys
import urllib.error
import urllib.request

SERVER = sys.argv[1] if len(sys.argv) > 1 else "localhost:{port}"
DOCUMENT = {document}

body = json.dumps(DOCUMENT).encode()
try:
    with urllib.request.urlopen(f"http://{{SERVER}}/models/{name}/ask", body) as answer:
        outputs = json.load(answer)
except urllib.error.HTTPError as error:
    sys.exit(f"{{error.code}}: {{error.read().decode()}}")
except OSError as error:
    sys.exit(f"no server answers on {{SERVER}}: {{error}}")
for name, values in outputs.items():
    print(name, values)
'''


def client_text(draft: Draft) -> str:
    is_stream = draft.kind is Kind.DECOUPLED
    form = _STREAM if is_stream else _SEQUENCE if draft.kind is Kind.SEQUENCE else _PLAIN
    types = (f'"{tensor.name}": "{tensor.datatype.name}"' for tensor in draft.inputs)
    return (_HEAD + form).format(
        name=draft.name,
        protocol="grpc" if is_stream else "http",
        imports="import queue\n" if is_stream else "",
        port=GRPC_PORT if is_stream else HTTP_PORT,
        inputs=draft.examples(draft.inputs),
        types="{" + ", ".join(types) + "}",
        outputs=", ".join(f'"{tensor.name}"' for tensor in draft.outputs),
    )


def curl_text(draft: Draft, server: str = f"localhost:{HTTP_PORT}") -> str:
    """Return a command line that asks the model.

    It is "" if JSON cannot carry an input or output, or if the line would be too long to read.
    """
    if not all(tensor.datatype.json_kind for tensor in (*draft.inputs, *draft.outputs)):
        return ""
    if sum(tensor.example_size() for tensor in draft.inputs) > MAX_ELEMENTS:
        return ""
    inputs = [
        {
            "name": tensor.name,
            "shape": tensor.shape(is_batching=draft.is_batching),
            "datatype": tensor.datatype.name,
            "data": tensor.example_data(),
        }
        for tensor in draft.inputs
    ]
    body: dict[str, object] = {"inputs": inputs}
    verb = "infer_stream" if draft.kind is Kind.DECOUPLED else "infer"
    if draft.kind is Kind.SEQUENCE:
        flags = {"sequence_id": 7, "sequence_start": True, "sequence_end": True}
        body = {"parameters": flags, **body}
    url = f"{server}/v2/models/{quote(draft.name, safe='')}/{verb}"
    return f"curl -sN {shlex.quote(url)} -d {shlex.quote(json.dumps(body))}"


def route_text(draft: Draft) -> str:
    names = json.dumps([tensor.name for tensor in draft.inputs])
    return _ROUTES.format(name=draft.name, inputs=names)


def document_code(draft: Draft) -> str:
    """Return Python code for a document that the route takes."""
    rows = (
        f'"{tensor.name}": {tensor.example_lists(is_batching=draft.is_batching)}'
        for tensor in draft.inputs
    )
    return "{" + ", ".join(rows) + "}"


def route_client_text(draft: Draft) -> str:
    return _CLIENT.format(name=draft.name, port=HTTP_PORT, document=document_code(draft))


def route_curl(draft: Draft) -> str:
    """Return a command line that asks the route; "" if it would be too long to read."""
    if sum(tensor.example_size() for tensor in draft.inputs) > MAX_ELEMENTS:
        return ""
    document = {
        tensor.name: tensor.example_document(is_batching=draft.is_batching)
        for tensor in draft.inputs
    }
    words = f"localhost:{HTTP_PORT}/models/{draft.name}/ask"
    return f"curl -s {words} -d {shlex.quote(json.dumps(document))}"
