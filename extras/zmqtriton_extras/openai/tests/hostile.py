"""Hostile documents to OpenAI's routes, beyond those that each route of the server gets."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.faults.attacks.hostile import Attack, House, drawn, many, post
from tests.support.server import Server

_PART = b'{"type":"text","text":"a"}'


def attacks(server: Server, chance: random.Random) -> Iterator[Attack]:
    chat = b'{"model":"parrot","messages":[{"role":"user","content":%b}]%b}'
    body = chat % (many(_PART, 10), b"")
    yield post(server, "POST /v1/chat/completions", "/v1/chat/completions", ("parts", body))
    for field in ("tools", "response_format", "tool_choice", "logit_bias", "metadata"):
        name, text = drawn(chance)
        body = chat % (b'"a"', b',"%b":%b' % (field.encode(), text))
        document = f"{field} {name}", body
        yield post(server, "POST /v1/chat/completions", "/v1/chat/completions", document)


HOUSE = House(attacks, lambda _: ("--allow-openai",))
