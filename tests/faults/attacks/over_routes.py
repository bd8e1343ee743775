"""Attacks on the routes of a model: on their paths and forms, and by what the routes do."""

from __future__ import annotations

import time

from tests.faults.attacks.target import ROUTED, Attacker
from tests.faults.attacks.watching import MIB

#: What the routes of the model do that is asked for; see the requests below.
CODE = """
import asyncio
import os
import time

from zmqtriton.routes import Response, route

kept = []


@route("POST /form")
async def form(request, infer):
    return {name: len(file.bytes) for name, file in request.files.items()} | request.form


@route("GET /hangs")
async def hangs(request, infer):
    await asyncio.sleep(1000)


@route("GET /blocks")
async def blocks(request, infer):
    time.sleep(1000)


@route("GET /dies")
async def dies(request, infer):
    os._exit(3)


@route("GET /flood")
async def flood(request, infer):
    while True:
        yield bytes(1 << 20)


@route("GET /leaks")
async def leaks(request, infer):
    kept.append(bytearray(8 << 20))
    return len(kept)


@route("GET /header")
async def header(request, infer):
    return Response("x", 200, [("x-a", request.query["value"])])
"""
_PATH = f"/models/{ROUTED}"
_FORM = {"Content-Type": "multipart/form-data; boundary=b"}
_PART = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
_PATHS = (
    "..",
    "../../v2",
    "%2e%2e/%2e%2e/etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "%2f",
    "//",
    "/",
    "%00",
    "form%00",
    "./form",
    "form/",
    "form//",
    "%252e%252e",
    "%ff%fe",
    "a" * 7000,
    "\\..\\x",
    "header?value=a%0d%0aX-Injected:%201",
    "header?value=%00",
    "form;a=b",
    "form%3fa=b",
    "*",
)


def strange_paths(attack: Attacker) -> None:
    """Paths that lead elsewhere, in each place of a path, and values that become headers."""
    choose, roots = attack.chance.choice, (_PATH, "/models", "", "/" + ROUTED, "/models/%2e%2e")
    attack.knock(lambda: attack.request(f"{choose(roots)}/{choose(_PATHS)}"), (0.005, 0.005))


def strange_forms(attack: Attacker) -> None:
    """Forms with wrong ends, with very many parts or headers, and with damaged bytes."""
    whole = _PART + b"x" * 100 + b"\r\n--b--\r\n"

    def form() -> bytes:
        damaged = bytearray(whole)
        for _ in range(attack.chance.randint(1, 5)):
            damaged[attack.chance.randrange(len(damaged))] = attack.chance.randrange(256)
        body = attack.chance.choice(
            (
                bytes(damaged),
                whole[: attack.chance.randrange(len(whole))] or b"x",
                (_PART + b"\r\n") * attack.between(2, 20_000) + b"--b--\r\n",
                b"--b\r\n" + b"X: y\r\n" * attack.between(10, 50_000) + b"\r\n--b--\r\n",
                (b"\r\n--b" + b" " * 1000) * attack.between(10, 1000),
            )
        )
        return attack.request(f"{_PATH}/form", body, **_FORM)

    attack.knock(form, (0.02, 0.02))


def endless_forms(attack: Attacker) -> None:
    """Forms of which much comes, and never all."""
    size = str(attack.between(64 * MIB, 1024 * MIB))
    head = attack.request(f"{_PATH}/form", b"x", Content_Length=size, **_FORM)[:-1]
    attack.pour(_PART + bytes(attack.between(MIB, 32 * MIB)), attack.between(4, 40), 0.5, head=head)


def giant_forms(attack: Attacker) -> None:
    """Whole forms of many megabytes, several at once."""
    body = _PART + bytes(attack.between(16 * MIB, 96 * MIB)) + b"\r\n--b--\r\n"
    whole = attack.request(f"{_PATH}/form", body, **_FORM)
    while not attack.is_over:
        attack.pour(whole, attack.between(1, 6), 2)
        time.sleep(1)


def slow_forms(attack: Attacker) -> None:
    """A thousand forms that come byte by byte, as many as there may be connections."""
    head = attack.request(f"{_PATH}/form", b"x", Content_Length="60000", **_FORM)[:-1]
    attack.trickle(attack.connections(1000, head), _PART + bytes(60_000), 0.2)


def _ask(attack: Attacker, path: str, count: int, room: int = 0) -> None:
    for _ in range(count):
        if not attack.is_over:
            attack.connect(attack.request(f"{_PATH}/{path}"), room)


def hanging(attack: Attacker) -> None:
    """Requests to a route that never answers, or one that keeps all others from answering."""
    _ask(attack, attack.chance.choice(("hangs", "blocks")), attack.between(20, 400))


def unread(attack: Attacker) -> None:
    """An answer without an end, which is not read."""
    _ask(attack, "flood", attack.between(10, 200), 4096)


def dying(attack: Attacker) -> None:
    """A route that ends its process, again and again."""
    attack.knock(lambda: attack.request(f"{_PATH}/dies"), (0.02, 1), leaving=0.0)


def leaking(attack: Attacker) -> None:
    """A route that keeps 8 MiB of each request."""
    attack.knock(lambda: attack.request(f"{_PATH}/leaks"), (0.05, 0.05))


ATTACKS = {
    "routes, strange paths": strange_paths,
    "routes, strange forms": strange_forms,
    "routes, forms that never end": endless_forms,
    "routes, giant forms": giant_forms,
    "routes, forms byte by byte": slow_forms,
    "routes that hang": hanging,
    "routes, answers not read": unread,
    "routes that die": dying,
    "routes that leak": leaking,
}
