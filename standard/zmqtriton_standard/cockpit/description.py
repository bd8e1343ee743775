"""GET /openapi.json: the API of this server as OpenAPI 3.1, with an example for each model.

Made from the application's own table of routes, so it has exactly the server's routes. Facts that
are not in the table (summaries, bodies) are in openapi_text.py, and in extensions for their routes.
Examples are made from signatures, are small, and are the same each time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import falcon.asgi

from zmqtriton.sdk.frontend import (
    Gateway,
    HttpExtension,
    HttpRequest,
    JsonSchema,
    ModelVersion,
    Operation,
    Route,
    bearer_tokens,
    json_documents,
)
from zmqtriton.sdk.wire import Grant, datatypes, signature
from zmqtriton_standard.cockpit.openapi_text import OPERATIONS, SCHEMAS

_PARAMETER = re.compile(r"{(\w+)(?::(\w+))?}")
_JSON = "application/json"
_TOKEN = "token"
#: Maximum number of elements in an example, so that it can be read.
_MAX_ELEMENTS = 64
_TEXT = "a few words of text"
#: The elements of an example by their place, for kinds of JSON; of others the place itself.
_ELEMENTS: Mapping[str, Callable[[int], Any]] = {
    "boolean": lambda index: index % 2 == 1,
    "number": float,
}
#: Returns an example of a text input, or "", by the model's configuration and the input's name.
_TextOf = Callable[[Mapping[str, Any], str], str]
#: Responders that send any number of responses; each other one sends exactly one.
_STREAMS = frozenset({"Generate.generate_stream", "InferStream.infer_stream"})

_TIMEOUT = {
    "name": "X-Request-Timeout",
    "in": "header",
    "description": "The seconds after which the client is answered 504.",
    "schema": {"type": "number", "exclusiveMinimum": 0},
}


class Description:
    """The responder of the description; routes may be added to `table` before the first request."""

    def __init__(self, gateway: Gateway, table: Sequence[Route]) -> None:
        self._gateway = gateway
        self._table = table
        self._operations = all_operations(gateway)
        text_of = signature.EXAMPLE.first_of(gateway.settings.offers) or (lambda config, name: "")
        infer, generate = partial(_infer_example, text_of), partial(_generate_example, text_of)
        #: Function that makes an example body, by the responder's qualified name.
        self._examples_of: dict[str, Callable[[ModelVersion], dict[str, Any] | None]] = {
            "AsgiInferences.infer": infer,
            "Generate.generate": generate,
            "Generate.generate_stream": generate,
            "InferStream.infer_stream": infer,
        }
        self._schemas: dict[str, Any] = dict(SCHEMAS)
        self._streams = set(_STREAMS)
        #: The schemas of errors by responder, where that is another than ours.
        self._errors: dict[str, str] = {}
        for extension in HttpExtension.all_of(gateway):
            more = extension.descriptions(gateway)
            self._examples_of = {**more.examples, **self._examples_of}
            self._schemas = {**more.schemas, **self._schemas}
            self._streams |= more.examples.keys()
            self._errors.update(dict.fromkeys(more.operations, more.error))

    async def document(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        document = self.describe(req.grant)
        for describe in filter(
            None, (each.describe for each in HttpExtension.all_of(self._gateway))
        ):
            await describe(self._gateway, req, document)
        resp.data = json_documents.write(document)

    def describe(self, grant: Grant | None) -> dict[str, Any]:
        """Return the document for a caller with this grant."""
        settings = self._gateway.settings
        paths: dict[str, dict[str, Any]] = {}
        for route in self._table:
            path = _PARAMETER.sub(r"{\1}", route.path)
            paths.setdefault(path, {})[route.method.lower()] = self._operation(route, path, grant)
        return {
            "openapi": "3.1.0",
            "info": {
                "title": settings.server.id,
                "version": settings.server.server_version,
                "description": "The inference protocol of KServe v2 with Triton's extensions.",
                **self._grpc(),
            },
            "servers": [{"url": "/"}],
            "tags": [{"name": tag} for tag in self._tags()],
            "paths": paths,
            "components": {"schemas": self._schemas, **self._security_schemes()},
        }

    def _grpc(self) -> dict[str, Any]:
        """Return the port of gRPC and its use of TLS, for examples; empty if gRPC is off."""
        settings = self._gateway.settings
        if not settings.grpc.is_served:
            return {}
        return {"x-grpc": {"port": settings.grpc.port, "tls": settings.grpc.use_ssl}}

    def _tags(self) -> list[str]:
        """Return the tags of the table: usual ones first, the others in the order of routes."""
        used = dict.fromkeys(map(_tag, self._table))
        first = [
            tag
            for tag in ("inference", "openai", "health", "metadata", "statistics", "status")
            if tag in used
        ]
        return first + [tag for tag in used if tag not in first]

    def _security_schemes(self) -> dict[str, Any]:
        if not self._gateway.settings.access.tokens:
            return {}
        return {"securitySchemes": {_TOKEN: {"type": "http", "scheme": "bearer"}}}

    def _operation(self, route: Route, path: str, grant: Grant | None) -> dict[str, Any]:
        responder = str(getattr(route.responder, "__qualname__", ""))
        entry = self._operations.get(responder, Operation(responder))
        parameters = [_parameter(*match) for match in _PARAMETER.findall(route.path)]
        operation: dict[str, Any] = {
            "operationId": _operation_id(route.method, path),
            "summary": entry.summary,
            "tags": [_tag(route)],
            "responses": {
                "200": _response(entry),
                "default": {
                    "description": "What was wrong.",
                    "content": {
                        _JSON: {"schema": JsonSchema.named(self._errors.get(responder, "Error"))}
                    },
                },
            },
        }
        if self._gateway.settings.access.tokens and route.need:
            operation["security"] = [{_TOKEN: []}]
        if "inference" in (route.category, route.general_category):
            parameters.append(_TIMEOUT)
        parameters += [
            {"name": name, "in": "query", "required": False, "schema": schema}
            for name, schema in entry.query.items()
        ]
        if parameters:
            operation["parameters"] = parameters
        if entry.request:
            content: dict[str, Any] = {"schema": JsonSchema.named(entry.request)}
            if responder in self._examples_of:
                content["examples"] = self._examples(responder, grant)
            operation["requestBody"] = {
                "required": entry.is_body_required,
                "content": {_JSON: content},
            }
        return operation

    def _examples(self, responder: str, grant: Grant | None) -> dict[str, Any]:
        make, examples = self._examples_of[responder], {}
        for model in self._gateway.catalogue.newest():
            if model.signature.is_decoupled and responder not in self._streams:
                continue  # it answers as often as it likes, which only a stream can carry
            if not bearer_tokens.may_see(grant, model.name):
                continue
            value = make(model)
            if value is not None:
                examples[model.name] = {"summary": f"For model={model.name}", "value": value}
        return examples


def all_operations(gateway: Gateway) -> dict[str, Operation]:
    """Return the descriptions of all responders of this server, by their qualified names."""
    more = [
        extension.descriptions(gateway).operations for extension in HttpExtension.all_of(gateway)
    ]
    return {name: text for texts in (*more, OPERATIONS) for name, text in texts.items()}


def _tag(route: Route) -> str:
    return route.category or "pages"


def _parameter(name: str, converter: str) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1}
    if converter == "number":
        schema = {"type": "string", "pattern": "^[0-9]+$"}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _operation_id(method: str, path: str) -> str:
    """Return an id, as unique as path and method; parameters in it begin with a capital letter."""
    words = re.sub(r"{(\w)", lambda match: "By" + match[1].upper(), path)
    return "_".join((method.lower(), *re.findall(r"\w+", words)))


def _response(entry: Operation) -> dict[str, Any]:
    if not entry.media:
        return {"description": "Done; the body is empty."}
    schema: dict[str, Any] = (
        JsonSchema.named(entry.response) if entry.response else {"type": "string"}
    )
    return {"description": "The answer.", "content": {entry.media: {"schema": schema}}}


def _infer_example(text_of: _TextOf, model: ModelVersion) -> dict[str, Any] | None:
    """Return an example of an inference as JSON.

    None if JSON cannot carry an input, or the example would be too large to read.
    """
    inputs = _presentable_inputs(model)
    if inputs is None:
        return None
    return {
        "inputs": [
            {
                "name": declaration.name,
                "shape": _shape(declaration),
                "datatype": datatypes.BY_NUMBER[declaration.datatype].name,
                "data": _elements(text_of, model, declaration),
            }
            for declaration in inputs
        ]
    }


def _generate_example(text_of: _TextOf, model: ModelVersion) -> dict[str, Any] | None:
    """Return an example of generate's flat JSON; None in the cases of an inference."""
    inputs = _presentable_inputs(model)
    if inputs is None:
        return None
    document = {}
    for declaration in inputs:
        elements = _elements(text_of, model, declaration)
        document[declaration.name] = elements[0] if len(elements) == 1 else elements
    return document


def _presentable_inputs(model: ModelVersion) -> list[signature.Input] | None:
    """Return the inputs that a request needs; None unless all fit into a few lines of JSON."""
    inputs = [each for each in model.signature.inputs.values() if not each.optional]
    is_presentable = all(
        datatypes.BY_NUMBER[each.datatype].json_kind and math.prod(_shape(each)) <= _MAX_ELEMENTS
        for each in inputs
    )
    return inputs if is_presentable else None


def _shape(declaration: signature.Input) -> list[int]:
    return [1 if dim < 0 else dim for dim in declaration.dims]


def _elements(text_of: _TextOf, model: ModelVersion, declaration: signature.Input) -> list[Any]:
    count = math.prod(_shape(declaration))
    if declaration.datatype == datatypes.BYTES:
        return [text_of(model.config, declaration.name) or _TEXT] * count
    make = _ELEMENTS.get(datatypes.BY_NUMBER[declaration.datatype].json_kind, int)
    return [make(index) for index in range(count)]
