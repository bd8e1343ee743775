"""Calls of every public method of PyTriton's clients, as a program that prints forms.

    python pytriton_calls.py HTTP_URL GRPC_URL

Prints a JSON object: the methods of each class, and the form of each one's answer. Serves of the
server: string_upper, counting and spare, which is loaded and unloaded.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from forms import WITHIN_S, form, outcome, public_methods
from pytriton import client as clients

WORDS = np.array([["a", "b"]], np.object_)
COUNT = np.array([3], np.int32)


def calls(client: Any, url: str) -> dict[str, Callable[[], Any]]:
    """Return the calls of a client that is no decoupled one, as far as it has the methods."""
    kind = type(client)
    return {
        "from_existing_client": lambda: kind.from_existing_client(client),
        "create_client_from_url": lambda: client.create_client_from_url(url),
        "get_lib": lambda: client.get_lib().__name__,
        "wait_for_server": lambda: client.wait_for_server(WITHIN_S),
        "wait_for_model": lambda: client.wait_for_model(WITHIN_S),
        "model_config": lambda: _read(client.model_config),
        "is_batching_supported": lambda: _read(client.is_batching_supported),
        "load_model": lambda: client.load_model(),
        "infer_sample": lambda: client.infer_sample(WORDS[0].astype(bytes)),
        "infer_batch": lambda: client.infer_batch(WORDS.astype(bytes)),
    }


def _read(member: Any) -> Any:
    return member() if callable(member) else member


async def forms_of(kind: type, url: str) -> dict[str, Any]:
    """Return the forms of the answers to all calls of one client."""
    client = kind(url, "string_upper")
    members = inspect.getmembers(kind, lambda member: isinstance(member, property))
    known = [*public_methods(kind), *(name for name, _ in members if not name.startswith("_"))]
    found = {
        name: form(await outcome(call))
        for name, call in calls(client, url).items()
        if name in known
    }
    found["close"] = form(await outcome(client.close))
    if "unload_model" in known:
        spare = kind(url, "spare")
        found["unload_model"] = form(await outcome(spare.unload_model))
        await outcome(spare.close)
    return {"methods": sorted(known), "forms": found}


async def streams_of(kind: type, url: str) -> dict[str, Any]:
    """Return the forms of the answers of a decoupled model; the rest is as in its base."""
    client = kind(url, "counting")
    found = {"infer_sample": form(await outcome(lambda: client.infer_sample(COUNT)))}
    found["close"] = form(await outcome(client.close))
    return {"methods": sorted(found), "forms": found}


async def main(http_url: str, grpc_url: str) -> None:
    found = {}
    for name in ("ModelClient", "FuturesModelClient", "AsyncioModelClient"):
        for protocol, url in (("http", http_url), ("grpc", grpc_url)):
            found[f"{name} {protocol}"] = await forms_of(getattr(clients, name), url)
    for name in ("DecoupledModelClient", "AsyncioDecoupledModelClient"):
        found[name] = await streams_of(getattr(clients, name), grpc_url)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
