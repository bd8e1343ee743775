"""Hostile documents to routes of a model, whose code reads them as JSON, a form or bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.faults.attacks.hostile import Attack, House, drawn, post
from tests.support.server import Server

_ROUTED = "routed"
_CONFIG = """
backend: "python"
input { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] }
"""
_MODEL = """
class TritonPythonModel:
    def execute(self, requests):
        return []
"""
_ROUTES = """
from zmqtriton.routes import route

@route("POST /json")
async def of_json(request, infer):
    return {"length": len(str(type(request.json())))}

@route("POST /form")
async def of_form(request, infer):
    return {name: len(text) for name, text in request.form.items()}
"""
_FORM = {"content-type": "multipart/form-data; boundary=b"}


def attacks(server: Server, chance: random.Random) -> Iterator[Attack]:
    for _ in range(2):
        yield post(server, "route, JSON", f"/models/{_ROUTED}/json", drawn(chance))
    name, text = drawn(chance)
    body = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n%b\r\n--b--\r\n' % text
    yield post(server, "route, form", f"/models/{_ROUTED}/form", (name, body), _FORM)


def prepare(server: Server) -> None:
    directory = server.write_model(_ROUTED, _CONFIG, _MODEL)
    (directory / "1" / "routes.py").write_text(_ROUTES)


HOUSE = House(attacks, lambda _: ("--routes",), prepare=prepare)
