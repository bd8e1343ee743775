"""Requests written and answers read by MLServer's types and codecs, as a program.

    python mlserver_calls.py HTTP_URL

Imports nothing of ours, since the Python is another's. Prints a JSON object: what was read, by the
names of the calls.
"""

from __future__ import annotations

import importlib
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np

VALUES = np.arange(16, dtype=np.float32).reshape(1, 16)


def _ask(url: str, document: str | None = None) -> str:
    body = None if document is None else document.encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
    except urllib.error.HTTPError as error:
        with error:
            text = error.read()
    return str(text.decode())


def _calls(url: str, types: Any, codecs: Any) -> Iterator[tuple[str, Any]]:
    def read(kind: Any, path: str, written: Any = None) -> Any:
        document = None if written is None else written.model_dump_json()
        return kind.model_validate_json(_ask(f"{url}{path}", document))

    server = read(types.MetadataServerResponse, "/v2")
    yield "server", [type(server.version).__name__, "binary_tensor_data" in server.extensions]
    model = read(types.MetadataModelResponse, "/v2/models/add_sub")
    yield "model", [model.name, [(i.name, i.datatype, i.shape) for i in model.inputs]]

    inputs = [codecs.NumpyCodec.encode_input(name, VALUES) for name in ("INPUT0", "INPUT1")]
    request = types.InferenceRequest(id="m1", inputs=inputs)
    answer = read(types.InferenceResponse, "/v2/models/add_sub/infer", request)
    decoded = {o.name: codecs.NumpyCodec.decode_output(o).tolist() for o in answer.outputs}
    yield "numpy", [answer.id, answer.model_version, decoded]

    words = codecs.StringCodec.encode_input("INPUT0", ["a", "ä"])
    request = types.InferenceRequest(
        inputs=[words], parameters=types.Parameters(content_type="str")
    )
    answer = read(types.InferenceResponse, "/v2/models/string_upper/infer", request)
    yield "words", codecs.StringCodec.decode_output(answer.outputs[0])

    request = types.InferenceRequest(inputs=inputs, outputs=[types.RequestOutput(name="OUTPUT1")])
    answer = read(types.InferenceResponse, "/v2/models/add_sub/infer", request)
    yield "output", [output.name for output in answer.outputs]

    yield "refusal", read(types.InferenceErrorResponse, "/v2/models/nobody/infer", request).error


def main(url: str) -> None:
    types = importlib.import_module("mlserver.types")
    codecs = importlib.import_module("mlserver.codecs")
    sys.stdout.write(json.dumps(dict(_calls(url, types, codecs))))


if __name__ == "__main__":
    main(*sys.argv[1:])
