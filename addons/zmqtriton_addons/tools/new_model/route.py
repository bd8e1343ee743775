"""Writes the route of a new model, and its client."""

from __future__ import annotations

import json
import shlex

from zmqtriton_addons.tools.new_model.client_code import HTTP_PORT, MAX_ELEMENTS
from zmqtriton_addons.tools.new_model.draft import Draft

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


def route_text(draft: Draft) -> str:
    names = json.dumps([tensor.name for tensor in draft.inputs])
    return _ROUTES.format(name=draft.name, inputs=names)


def route_client_text(draft: Draft) -> str:
    rows = (
        f'"{tensor.name}": {tensor.example_lists(is_batching=draft.is_batching)}'
        for tensor in draft.inputs
    )
    document = "{" + ", ".join(rows) + "}"
    return _CLIENT.format(name=draft.name, port=HTTP_PORT, document=document)


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
