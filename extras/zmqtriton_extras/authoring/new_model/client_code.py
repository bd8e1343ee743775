"""Writes the client of a new model."""

from __future__ import annotations

import json
import shlex
from urllib.parse import quote

from zmqtriton_extras.authoring.new_model.draft import Draft, Kind

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
    """Return a command line that calls the model.

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
