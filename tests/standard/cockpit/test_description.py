from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import falcon.inspect
import pytest

from tests.frontends.fake_gateway import tensor_config, version_info
from tests.frontends.http_api.fakes import Client, FakeGateway
from zmqtriton import addons
from zmqtriton.options import Options
from zmqtriton_floor.signature import Signature
from zmqtriton_frontends.http_api import app
from zmqtriton_frontends.http_api.asgi.access import AccessRules
from zmqtriton_frontends.http_api.inference import infer_request
from zmqtriton_standard.cockpit.description import Description, all_operations
from zmqtriton_standard.generate import request as generate_request

pytestmark = pytest.mark.slow

#: All that the core and the add-ons of the HTTP frontend may answer.
WITH_ADD_ONS = pytest.param({"allow_openai": True}, marks=pytest.mark.addons)
METHODS = {"get", "put", "post", "delete", "options", "head", "patch", "trace"}


def described(gateway: FakeGateway | None = None) -> dict[str, Any]:
    result = (Client(gateway) if gateway else usual()).request("GET", "/openapi.json")
    assert (200, "application/json") == (result.status_code, result.headers["content-type"])
    return result.json


@cache
def usual() -> Client:
    return Client(FakeGateway())


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def examples(document: dict[str, Any], verb: str) -> dict[str, Any]:
    body = document["paths"][f"/v2/models/{{model}}/{verb}"]["post"]["requestBody"]
    return {
        name: example["value"]
        for name, example in body["content"]["application/json"]["examples"].items()
    }


def arrays(value: Any) -> Iterator[dict[str, Any]]:
    """Return the schemas of a document that admit arrays."""
    if isinstance(value, dict):
        kinds = value.get("type")
        if kinds == "array" or (isinstance(kinds, list) and "array" in kinds):
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from arrays(each)


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from references(each)


def faults(value: Any, schema: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    """Return the places where a value does not fit a schema of ours."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    keywords = {
        "type",
        "properties",
        "required",
        "items",
        "enum",
        "minimum",
        "minLength",
        "pattern",
    }
    assert schema.keys() <= keywords | {"additionalProperties", "description"}
    kinds: dict[str, Any] = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
    }
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(isinstance(value, kinds[kind]) for kind in names):
        yield f"{value!r} is no {names}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{value!r} is not among {schema['enum']}"
    if isinstance(value, dict):
        yield from (
            f"{name} is missing" for name in schema.get("required", ()) if name not in value
        )
        for name, each in value.items():
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            if inner:
                yield from faults(each, inner, schemas)
    if isinstance(value, list) and schema.get("items"):
        for each in value:
            yield from faults(each, schema["items"], schemas)


@pytest.fixture(params=[{}, WITH_ADD_ONS], ids=["core", "add-ons"])
def gateway(request: pytest.FixtureRequest) -> FakeGateway:
    return FakeGateway(**request.param)


def test_it_describes_exactly_what_the_application_answers(gateway: FakeGateway) -> None:
    access = AccessRules(gateway.settings)
    built = app.build(gateway, app.routes(gateway), access)
    routes = falcon.inspect.inspect_routes(built)
    # Falcon adds OPTIONS, which is answered like any other wrong method. HEAD is where GET is. At
    # the path of functions, other methods than theirs are refused by a responder.
    real = {
        (re.sub(r":\w+}", "}", route.path), method.method.lower())
        for route in routes
        for method in route.methods
        if not method.internal and method.method not in ("OPTIONS", "HEAD")
        if not route.path.startswith("/{path") or method.method in ("GET", "POST")
    }

    assert real == {(path, method) for path, method, _ in operations(described(gateway))}


def test_every_responder_is_described_in_words(gateway: Any) -> None:
    used = {route.responder.__qualname__ for route in app.routes(gateway)}

    described_ones = all_operations(gateway).keys()
    assert [] == sorted(used - described_ones), "add what it does to openapi_text.py"
    assert [] == sorted(described_ones - used), "this is no responder of any route"


def test_it_says_where_a_token_is_needed() -> None:
    gateway: Any = FakeGateway(tokens="/path")
    described_so = Description(gateway, app.routes(gateway)).describe(None)

    scheme = {"token": {"type": "http", "scheme": "bearer"}}
    assert scheme == described_so["components"]["securitySchemes"]
    closed = [path for path, _, row in operations(described_so) if "security" in row]
    assert {"/v2", "/v2/models/{model}/infer", "/v2/models/{model}/ready"} < set(closed)
    assert not {"/v2/health/live", "/v2/health/ready"} & set(closed)
    assert "securitySchemes" not in described()["components"]
    assert not any("security" in row for _, _, row in operations(described()))


def test_examples_over_grpc_can_know_where_that_is() -> None:
    with_tls = described(FakeGateway(grpc_port=9001, grpc_use_ssl=True))
    without = described(FakeGateway(allow_grpc=False))

    assert {"port": 9001, "tls": True} == with_tls["info"]["x-grpc"]
    assert "x-grpc" not in without["info"]


def test_it_is_openapi(gateway: FakeGateway) -> None:
    document = described(gateway)

    assert "3.1.0" == document["openapi"]
    assert {"title", "version"} <= document["info"].keys()
    assert {"openapi", "info", "servers", "tags", "paths", "components"} == document.keys()
    tags = [tag["name"] for tag in document["tags"]]
    assert len(tags) == len(set(tags))
    for path, method, operation in operations(document):
        assert path.startswith("/")
        assert method in METHODS
        assert {"operationId", "summary", "tags", "responses"} <= operation.keys()
        assert set(operation["tags"]) <= set(tags)
        declared = operation.get("parameters", [])
        of_path = [one for one in declared if one["in"] == "path"]
        assert re.findall(r"{(\w+)}", path) == [p["name"] for p in of_path]
        assert all(p["required"] for p in of_path)
        assert all(p["in"] in ("path", "query", "header") and p["schema"] for p in declared)
        assert {"200", "default"} == operation["responses"].keys()
        assert all(r["description"] for r in operation["responses"].values())


def test_all_that_infers_takes_a_timeout() -> None:
    timed = {
        path: method
        for path, method, operation in operations(described())
        if "X-Request-Timeout" in [one["name"] for one in operation.get("parameters", ())]
    }

    model = "/v2/models/{model}"
    assert {f"{model}/infer", f"{model}/generate", f"{model}/generate_stream"} <= timed.keys()
    # but a WebSocket begins with GET, and that of a function may wait until it is loaded
    others = [path for path in timed if timed[path] != "post"]
    assert all(path.endswith(("/stream", "/{path}")) for path in others)


def test_no_two_operations_have_one_name(gateway: FakeGateway) -> None:
    names = [operation["operationId"] for _, _, operation in operations(described(gateway))]

    assert sorted(set(names)) == sorted(names)


def test_all_that_is_referred_to_is_there_and_nothing_else(gateway: FakeGateway) -> None:
    document = described(gateway)

    used = set(references(document))

    assert {f"#/components/schemas/{name}" for name in document["components"]["schemas"]} == used


def test_each_array_says_what_its_elements_are(gateway: FakeGateway) -> None:
    # generators of clients leave out what has other arrays
    schemas = list(arrays(described(gateway)))

    assert schemas
    assert not [one for one in schemas if "items" not in one]


def test_each_model_that_json_can_carry_has_an_example() -> None:
    # Not those of 16-bit floats; a decoupled one only where it may answer often.
    expected = {"batching", "booleans", "identity", "integers", "rows", "strings", "unsigned"}

    document = described()

    assert expected == examples(document, "infer").keys()
    assert expected == examples(document, "generate").keys()
    assert {*expected, "decoupled"} == examples(document, "generate_stream").keys()


def test_an_example_is_what_its_model_accepts() -> None:
    gateway = FakeGateway()
    gateway.catalogue.update(version_info("optional", input=OPTIONAL, max_batch_size=4))
    document = described(gateway)
    schemas = document["components"]["schemas"]

    for name, value in examples(document, "infer").items():
        assert [] == list(faults(value, {"$ref": "/InferRequest"}, schemas))
        gateway.catalogue.find(name).signature.check(infer_request.read(value, None)[0])
    for name, value in examples(document, "generate").items():
        signature: Signature = gateway.catalogue.find(name).signature
        signature.check(generate_request.read(value, signature.inputs))
    assert {"NEEDED"} == examples(document, "generate")["optional"].keys()


@pytest.mark.extra("openai")
def test_an_example_of_a_chat_is_json() -> None:
    gateway = FakeGateway(offers=addons.offers_in_use(Options().value))
    inputs = [tensor_config(name, "STRING", [1]) for name in ("messages", "prompt")]
    gateway.catalogue.update(version_info("chat", input=inputs))

    example = examples(described(gateway), "generate")["chat"]

    assert [{"role": "user", "content": "hello"}] == json.loads(example["messages"])
    assert "a few words of text" == example["prompt"]


OPTIONAL = [
    tensor_config("NEEDED", "INT64", [2, -1]),
    tensor_config("SPARE", "FP16", [1], optional=True),
]


def test_a_schema_refuses_what_does_not_fit() -> None:
    schemas = described()["components"]["schemas"]
    wrong = {"inputs": [{"name": 1, "shape": [-1.5], "datatype": "FP99"}]}

    assert 3 == len(list(faults(wrong, {"$ref": "/InferRequest"}, schemas)))
    assert ["inputs is missing"] == list(faults({}, {"$ref": "/InferRequest"}, schemas))


def test_nobody_reads_long_examples() -> None:
    gateway = FakeGateway()
    gateway.catalogue.update(
        version_info("image", input=[tensor_config("PIXELS", "UINT8", [3, 224, 224])])
    )

    assert "image" not in examples(described(gateway), "infer")


def test_a_model_that_is_not_loaded_has_no_example() -> None:
    gateway = FakeGateway()
    gateway.catalogue.update(version_info()._replace(state="UNAVAILABLE"))

    assert "identity" not in examples(described(gateway), "infer")
