"""What the supervisor asks about object stores, and the answers: names, and copies of models.

Called by the process that `__main__` is. A store that does not answer costs what lies in it, and
nothing of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from zmqtriton.storage.mirror import Mirror, together
from zmqtriton.storage.places import parse
from zmqtriton.storage.stores import OddName, Store
from zmqtriton.storage.trees import Object, by_model, digest, is_model_name, tree
from zmqtriton_floor.errors import InternalError, InvalidArgument, ZmqTritonError

#: What was changed this recently may be half of what will be there.
_YOUNG_S = 60.0
#: Nothing may change for so long.
_QUIET_S = 2.0
_MOST_LOOKS = 60
_MOST_ATTEMPTS = 5
_AT_ONCE = 16


async def names(urls: Sequence[str]) -> list[dict[str, Any]]:
    """Of each repository its models with what tells them from what they were, and what is wrong
    with the others; or the error that it could not be listed."""
    return await together(_names(url) for url in urls)


async def _names(url: str) -> dict[str, Any]:
    try:
        store = Store(parse(url))
        try:
            found = by_model(await store.objects())
        except OddName:
            # One object hides all those that come with it; the other models are asked for alone.
            return await _names_one_by_one(store)
    except ZmqTritonError as error:
        return {"error": error.text}
    return {"models": {name: digest(objects) for name, objects in found.items()}, "odd": {}}


async def _names_one_by_one(store: Store) -> dict[str, Any]:
    models: dict[str, str] = {}
    odd: dict[str, str] = {}
    turns = asyncio.Semaphore(_AT_ONCE)

    async def look(name: str) -> None:
        async with turns:
            try:
                models[name] = digest(await store.objects(name))
            except OddName as error:
                odd[name] = error.text

    await together(look(name) for name in await store.folders() if is_model_name(name))
    return {"models": models, "odd": odd}


async def copy(
    mirror: Mirror, number: int, model: str, urls: Sequence[str], *, is_patient: bool
) -> dict[str, Any]:
    """Where the model is, and the directory of its copy if that is one place. Who is patient waits
    for uploads to end. Raises ZmqTritonError."""
    looks = await together(_look(url, model) for url in urls)
    errors = [found for found in looks if isinstance(found, ZmqTritonError)]
    places = [found for found in looks if isinstance(found, _Found)]
    answer = {"urls": [place.url for place in places], "directory": "", "digest": "", "odd": ""}
    if len(places) > 1:
        return answer
    if not places:
        for error in errors:
            raise error
        return answer
    (place,) = places
    try:
        directory, mark = await _copy(mirror, number, model, place, is_patient=is_patient)
        return {**answer, "directory": directory, "digest": mark}
    except InvalidArgument as error:
        # It stays so until somebody changes it.
        return {**answer, "odd": error.text, "digest": digest(place.objects)}


class _Found:
    """A repository that has the model."""

    def __init__(self, url: str, store: Store, objects: list[Object]) -> None:
        self.url = url
        self.store = store
        self.objects = objects


async def _look(url: str, model: str) -> _Found | ZmqTritonError | None:
    try:
        store = Store(parse(url))
        objects = await store.objects(model)
    except ZmqTritonError as error:
        return error
    return _Found(url, store, objects) if objects else None


async def _copy(
    mirror: Mirror, number: int, model: str, place: _Found, *, is_patient: bool
) -> tuple[str, str]:
    objects = place.objects
    for _ in range(_MOST_ATTEMPTS):
        wanted = tree(objects)
        directory = mirror.find(model, place.url, wanted.digest)
        if not directory and is_patient:
            wanted = tree(await _settled(place, model, objects))
        if not directory:
            directory = await mirror.copy(number, model, place.url, wanted, place.store)
        if directory:
            return directory, wanted.digest
        objects = await place.store.objects(model)
    raise InternalError(f"{place.url}/{model} was changed each time that it was copied")


async def _settled(place: _Found, model: str, objects: list[Object]) -> list[Object]:
    """Its objects once nobody adds to them."""
    for _ in range(_MOST_LOOKS):
        now = datetime.now(timezone.utc)
        youngest = max((entry.changed for entry in objects), default=now)
        if (now - youngest).total_seconds() > _YOUNG_S:
            return objects
        await asyncio.sleep(_QUIET_S)
        again = await place.store.objects(model)
        if digest(again) == digest(objects):
            return again
        objects = again
    raise InternalError(f"{place.url}/{model} is still being changed")
