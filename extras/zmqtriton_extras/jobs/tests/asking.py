"""Jobs of a real server, as a client of HTTP has them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.support.server import Server
from tests.support.waiting import eventually

ENDS = ("succeeded", "failed", "cancelled")


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def ask(
    server: Server,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    method: str | None = None,
) -> Reply:
    request = urllib.request.Request(server.url + path, body, headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            fields = {name.lower(): value for name, value in answer.headers.items()}
            return Reply(answer.status, fields, answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Reply(error.code, dict(error.headers), error.read())


def journal_body(own_id: str, milliseconds: int = 0) -> bytes:
    """Return a request to the model `journal`."""
    rows = [("ID", "BYTES", own_id), ("MS", "INT32", milliseconds)]
    inputs = [
        {"name": name, "datatype": datatype, "shape": [1, 1], "data": [value]}
        for name, datatype, value in rows
    ]
    return json.dumps({"inputs": inputs}).encode()


def submit(
    server: Server,
    own_id: str,
    milliseconds: int = 0,
    model: str = "journal",
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Reply:
    path, body = f"/v2/models/{model}/infer", journal_body(own_id, milliseconds)
    return ask(server, path, body, {"Prefer": "respond-async", **headers})


def state_of(server: Server, job: str) -> Any:
    reply = ask(server, f"/v2/jobs/{job}")
    assert reply.status == 200, reply
    return reply.document


def soon(condition: Callable[[], object]) -> None:
    """Wait until something is the case."""
    eventually(condition, 60.0)


def ended(server: Server, job: str) -> Any:
    """Return the state of a job when it has ended."""
    soon(lambda: state_of(server, job)["state"] in ENDS)
    return state_of(server, job)


def add_journal(server: Server, name: str = "journal", **parameters: str) -> Path:
    """Add the model `journal` with more parameters."""
    directory = server.add_model("journal", name)
    with (directory / "config.pbtxt").open("a") as config:
        for key, value in parameters.items():
            config.write(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n')
    return directory
