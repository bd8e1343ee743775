"""Answers the supervisor's calls about object stores: names of models, and copies of them.

A store that does not answer only affects its own models.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zmqtriton_floor.errors import InternalError, InvalidArgument, ZmqTritonError
from zmqtriton_standard.storage.mirror import Mirror, gather_or_cancel
from zmqtriton_standard.storage.trees import (
    InvalidObjectName,
    StoredObject,
    build_tree,
    digest,
    group_by_model,
    is_model_name,
    without,
)

if TYPE_CHECKING:
    from zmqtriton_standard.storage.mirror import Store

#: Opens a repository by its URL, or raises ZmqTritonError.
OpenStore = Callable[[str], Awaitable["Store"]]
#: What was changed this recently may be half of an upload.
_RECENT_CHANGE_S = 60.0
#: How long nothing may change before an upload counts as complete.
_QUIET_S = 2.0
_MAX_LOOKS = 60
_MAX_ATTEMPTS = 5
_MAX_CONCURRENT_LISTINGS = 16


async def list_models(urls: Sequence[str], open_store: OpenStore) -> list[dict[str, Any]]:
    """List the models of each repository with fingerprints and problems, or its error."""
    return await gather_or_cancel(_names(url, open_store) for url in urls)


async def _names(url: str, open_store: OpenStore) -> dict[str, Any]:
    try:
        store = await open_store(url)
        try:
            by_model = group_by_model(await store.list_objects())
        except InvalidObjectName:
            # one object hides all those that come with it; the other models are listed one by one
            return await _names_one_by_one(store)
    except ZmqTritonError as error:
        return {"error": error.text}
    return {"models": {name: digest(objects) for name, objects in by_model.items()}, "odd": {}}


async def _names_one_by_one(store: Store) -> dict[str, Any]:
    models: dict[str, str] = {}
    odd: dict[str, str] = {}
    turns = asyncio.Semaphore(_MAX_CONCURRENT_LISTINGS)

    async def look(name: str) -> None:
        async with turns:
            try:
                models[name] = digest(await store.list_objects(name))
            except InvalidObjectName as error:
                odd[name] = error.text

    await gather_or_cancel(look(name) for name in await store.list_folders() if is_model_name(name))
    return {"models": models, "odd": odd}


async def copy_model(
    mirror: Mirror,
    number: int,
    model: str,
    urls: Sequence[str],
    open_store: OpenStore,
    *,
    is_patient: bool,
    own: Sequence[str] = (),
) -> dict[str, Any]:
    """Find a model, and copy it if it is in exactly one place.

    With `is_patient` uploads are waited for. `own` is the model's own directory, with its
    fingerprint. Raises ZmqTritonError.
    """
    looks = await gather_or_cancel(_find_source(url, model, open_store) for url in urls)
    errors = [look for look in looks if isinstance(look, ZmqTritonError)]
    places = [look for look in looks if isinstance(look, _ModelSource)]
    answer = {"urls": [place.url for place in places], "directory": "", "digest": "", "odd": ""}
    if errors and not places:
        raise errors[0]
    if len(places) != 1:
        return answer
    (place,) = places
    try:
        directory, mark = await _copy_until_consistent(
            mirror, number, model, place, is_patient=is_patient, own=own
        )
        return {**answer, "directory": directory, "digest": mark}
    except InvalidArgument as error:
        # it stays so until somebody changes it
        return {**answer, "odd": error.text, "digest": digest(place.objects)}


class _ModelSource(NamedTuple):
    """A repository that has the model."""

    url: str
    store: Store
    objects: list[StoredObject]


async def _find_source(
    url: str, model: str, open_store: OpenStore
) -> _ModelSource | ZmqTritonError | None:
    try:
        store = await open_store(url)
        objects = await store.list_objects(model)
    except ZmqTritonError as error:
        return error
    return _ModelSource(url, store, objects) if objects else None


async def _copy_until_consistent(
    mirror: Mirror,
    number: int,
    model: str,
    place: _ModelSource,
    *,
    is_patient: bool,
    own: Sequence[str],
) -> tuple[str, str]:
    objects = place.objects
    for _ in range(_MAX_ATTEMPTS):
        tree = build_tree(objects)
        if own:
            tree = without(tree, await asyncio.to_thread(_paths, own[0]), *own)
        directory = mirror.find_copy(model, place.url, tree.digest)
        if not directory and is_patient:
            tree = build_tree(await _wait_until_unchanged(place, model, objects))
        if not directory:
            directory = await mirror.copy_model(number, model, place.url, tree, place.store)
        if directory:
            return directory, tree.digest
        objects = await place.store.list_objects(model)
    raise InternalError(f"{place.url}/{model} was changed each time that it was copied")


def _paths(directory: str) -> set[str]:
    """Return the files of a directory and of those below it."""
    below = Path(directory)
    return {str(path.relative_to(below)) for path in below.rglob("*") if not path.is_dir()}


async def _wait_until_unchanged(
    place: _ModelSource, model: str, objects: list[StoredObject]
) -> list[StoredObject]:
    """Return its objects once nobody adds to them."""
    for _ in range(_MAX_LOOKS):
        now = datetime.now(timezone.utc)
        youngest = max((entry.modified_at for entry in objects), default=now)
        if (now - youngest).total_seconds() > _RECENT_CHANGE_S:
            return objects
        await asyncio.sleep(_QUIET_S)
        again = await place.store.list_objects(model)
        if digest(again) == digest(objects):
            return again
        objects = again
    raise InternalError(f"{place.url}/{model} is still being changed")
