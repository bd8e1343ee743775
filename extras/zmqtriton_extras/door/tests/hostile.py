"""Hostile documents by the door: elements of texts, parameters and names of requests."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.faults.attacks.hostile import OTHER, VICTIM, Answer, Attack, House, drawn
from tests.support.server import Server
from zmqtriton_extras.door.client.connection import Door
from zmqtriton_floor.errors import ZmqTritonError

_ONE = np.ones(1, np.float32)


def place_of(server: Server) -> str:
    return str(server.directory.parent / "r" / "door")


def ask(path: str, model: str, inputs: dict[str, Any], **more: Any) -> Answer:
    with Door(path) as door:
        try:
            for _ in door.model(model).infer(inputs=inputs, **more):
                pass
        except ZmqTritonError as error:
            return Answer(error.http_status, error.text[:200])
    return Answer(200)


def asks_door(path: str) -> bool:
    return 200 == ask(path, OTHER, {"INPUT0": _ONE}).status


def attacks(server: Server, chance: random.Random) -> Iterator[Attack]:
    path = place_of(server)

    def attack(name: str, size: int, model: str, inputs: dict[str, Any], **more: Any) -> Attack:
        asking = functools.partial(ask, path, model, inputs, **more)
        return Attack("door infer", f"{name} to {model}", size, asking)

    name, text = drawn(chance)
    element = np.array([text], np.object_)
    for model in ("box", "row", "strings"):
        yield attack(name, len(text), model, {"x" if model != "strings" else "INPUT0": element})
    empty = np.full(4 << 20, b"", np.object_)
    yield attack("empty texts", 4 * empty.size, "strings", {"INPUT0": empty})
    name, text = drawn(chance, 16.0)
    for more in ({"parameters": {"a": text.decode()}}, {"request_id": text.decode()}):
        yield attack(f"{[*more]} {name}", len(text), VICTIM, {"INPUT0": _ONE}, **more)
    many = {f"{number:x}": number for number in range(1 << 18)}
    yield attack("parameters", 12 * len(many), VICTIM, {"INPUT0": _ONE}, parameters=many)


def options(directory: Path) -> tuple[str, ...]:
    return ("--zmq-door",)


HOUSE = House(
    attacks,
    options,
    bystanders=lambda server: {"door": functools.partial(asks_door, place_of(server))},
)
