"""Clients of the model `scripted`, which does what a request's script says."""

from __future__ import annotations

import http.client
import json
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

from tests.support.server import Server

#: Scripts are coroutines.
ASYNC = 'parameters { key: "ASYNC" value { string_value: "yes" } }\n'
DECOUPLED = "model_transaction_policy { decoupled: true }\n"
#: Shows that it is being executed, and waits for leave to end.
GATE = """
    import os, time
    path = text_of(request)
    open(path + ".begun", "w").close()
    while not os.path.exists(path):
        time.sleep(0.005)
    return [reply("through")]
"""
ITERATIVE = "sequence_batching { iterative_sequence: true }\n"


def add_model(server: Server, source: str, name: str, config: str = "") -> None:
    """A copy of a model, with more in its configuration."""
    server.add_model(source, name)
    extend_config(server, name, config)


def extend_config(server: Server, model: str, text: str) -> None:
    """Append to the configuration of a model that is in the repository."""
    with (server.repository / model / "config.pbtxt").open("a") as config:
        config.write(text)


def string_parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def dedented(script: str) -> str:
    """Return a script as a model takes it."""
    return textwrap.dedent(script).strip()


def _document(script: str, argument: str, more: dict[str, Any]) -> dict[str, Any]:
    return {"SCRIPT": dedented(script), "ARGUMENT": argument, **more}


def generate(server: Server, model: str, script: str, argument: str = "", **more: Any) -> str:
    """Return what a model that answers once says; the error, if that is one."""
    status, answer = server.request_json(
        f"/v2/models/{model}/generate", _document(script, argument, more)
    )
    return str(answer["TEXT"] if status == 200 else answer["error"])


@contextmanager
def asked_meanwhile(server: Server, model: str, script: str) -> Iterator[None]:
    """Have a model answer all the time; fail if it says anything but one thing."""
    is_over, texts = threading.Event(), set[str]()

    def ask() -> None:
        while not is_over.is_set():
            texts.add(generate(server, model, script))
            is_over.wait(0.02)

    with ThreadPoolExecutor(1) as thread:
        asking = thread.submit(ask)
        try:
            yield
        finally:
            is_over.set()
        asking.result(60)
    assert 1 == len(texts), texts


@contextmanager
def open_stream(
    server: Server, model: str, script: str, argument: str = "", **more: Any
) -> Iterator[http.client.HTTPConnection]:
    """A client that has asked for a stream, and leaves at the end."""
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    with closing(connection):
        path = f"/v2/models/{model}/generate_stream"
        connection.request("POST", path, json.dumps(_document(script, argument, more)))
        yield connection


def generate_stream(
    server: Server, model: str, script: str, argument: str = "", **more: Any
) -> list[str]:
    """All that it says, texts and errors."""
    with open_stream(server, model, script, argument, **more) as connection:
        lines = connection.getresponse().read().decode().splitlines()
    events = [line for line in lines if line and not line.startswith("retry: ")]
    documents = [json.loads(line.removeprefix("data: ")) for line in events]
    return [document.get("TEXT", document.get("error")) for document in documents]
