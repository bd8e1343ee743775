"""Every door that takes a client's document is attacked, or is named with a reason."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.faults.attacks import documents
from tests.frontends.http_api.fakes import FakeGateway
from zmqtriton import addons
from zmqtriton_frontends.http_api.app import routes
from zmqtriton_standard.cockpit.description import Description

pytestmark = pytest.mark.slow

#: Paths that take a document and are in no description, and who attacks them.
UNDESCRIBED = {
    "/{path:path}": "each function has its own path in the description",
    "/models/{model:name}/{path:path}": "routes: hostile.py there",
}
#: Add-ons with a door of their own, and why they have no attacks of their own.
WITHOUT = {
    "access_log": "its process reads lines of the server's own",
    "cockpit": "its routes are in the description",
    "environments": "its command line prepares environments",
    "fleet": "its process asks other servers",
    "generate": "its routes are in the description",
    "inspection": "its routes are in the description",
    "metrics": "its port takes no body",
    "otlp_logs": "its process sends only",
    "otlp_metrics": "its process sends only",
    "storage": "its process reads an operator's stores",
    "tracing": "its process reads spans of the server's own",
}


def test_each_route_that_takes_a_body_is_attacked() -> None:
    gateway: Any = FakeGateway(model_control_mode="explicit", allow_openai=True)
    table = routes(gateway)
    description = Description(gateway, table).describe(None)
    described = {documents.place_of(path) for path in documents.posted_paths(description)}

    taking = {route.path for route in table if route.method not in ("GET", "HEAD", "DELETE")}
    missing = {
        path
        for path in taking - UNDESCRIBED.keys()
        if documents.place_of(re.sub(r":\w+}", "}", path)) not in described
    }

    assert len(taking) > 20
    assert not missing
    assert UNDESCRIBED.keys() <= taking | {*UNDESCRIBED}


def test_each_rpc_is_attacked_with_each_of_its_fields() -> None:
    rpcs = documents.rpcs()
    assert {"ModelInfer", "ModelStreamInfer", "RepositoryModelLoad", "TraceSetting"} <= {
        rpc.method for rpc in rpcs
    }

    for rpc in rpcs:
        message = documents.input_of(rpc)
        documents.fill(message, "text", 2)
        names = [
            field.name
            for field in message.DESCRIPTOR.fields
            if field.is_repeated or field.type in (field.TYPE_STRING, field.TYPE_BYTES)
        ]
        unset = [name for name in names if not getattr(message, name)]
        # of a choice the last one is set
        assert not unset or "ServerReflectionInfo" == rpc.method, unset


def test_each_add_on_with_a_door_is_attacked_or_has_a_reason() -> None:
    kinds = {"http.extension", "requests.step"}
    with_doors = {
        name
        for name, each in addons.own_add_ons().items()
        if each.declared.ports or each.declared.process or kinds & each.declared.offers.keys()
    }
    attacked = documents.houses().keys()

    assert with_doors == (attacked - {""}) | WITHOUT.keys()
    assert not attacked & WITHOUT.keys()
