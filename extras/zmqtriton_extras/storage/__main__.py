"""The process that talks to object stores, so that the supervisor never waits for a network.

The supervisor starts it at the first question to a store, and again after its death. It takes calls
over its lifeline, several at a time, and answers each; it ends with the lifeline. A store is opened
once, and stays at its revision.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zmqtriton.sdk.process import Lifeline, prctl
from zmqtriton.sdk.wire import InternalError, InvalidArgument, ZmqTritonError, logs, wire
from zmqtriton_extras.storage.blobs import BlobCache, default_root
from zmqtriton_extras.storage.file_stores import FileStore
from zmqtriton_extras.storage.mirror import Mirror, gather_or_cancel
from zmqtriton_extras.storage.places import ArtifactPath, BucketPath, HubPath, parse_url
from zmqtriton_extras.storage.trees import (
    InvalidObjectName,
    StoredObject,
    build_tree,
    digest,
    group_by_model,
    is_model_name,
    without,
)
from zmqtriton_standard.environments.reports import LifelineReporter, printable

if TYPE_CHECKING:
    from zmqtriton_extras.storage.stores import ObjectStore


class Stores:
    def __init__(self, warn: Callable[[str], None]) -> None:
        """Set up; `warn` gets lines for the log."""
        self._warn = warn
        #: The keys are its URL and the model whose source it is, or "".
        self._opened: dict[tuple[str, str], FileStore] = {}
        self._turn = asyncio.Lock()

    @property
    def revisions(self) -> dict[str, str]:
        """The revisions of the repositories by URL, where there are any."""
        return {url: store.revision for (url, _), store in self._opened.items()}

    async def open(
        self, url: str, revisions: Mapping[str, str], owner: str = ""
    ) -> ObjectStore | FileStore:
        """Open a repository, at its revision if that is known. Raises ZmqTritonError."""
        place = parse_url(url)
        # libraries of stores are extras, and slow to import
        if isinstance(place, BucketPath):
            from zmqtriton_extras.storage.stores import ObjectStore

            return ObjectStore(place)
        async with self._turn:
            if (url, owner) not in self._opened:
                store = _file_store(place)
                store.owner = owner
                revision = revisions.get(url) or self.revisions.get(url, "")
                await store.open(revision, self._warn)
                self._opened[url, owner] = store
            return self._opened[url, owner]


def _file_store(place: HubPath | ArtifactPath) -> FileStore:
    cache = BlobCache(default_root())
    if isinstance(place, ArtifactPath):
        from zmqtriton_extras.storage.registry import RegistryStore

        return RegistryStore(place, cache)
    from zmqtriton_extras.storage.hub import HubStore

    return HubStore(place, cache)


if TYPE_CHECKING:
    from zmqtriton_extras.storage.mirror import Store

#: Opens a repository by its URL, or raises ZmqTritonError.
OpenStore = Callable[[str], Awaitable["Store"]]
#: Age in seconds below which an object's change may be part of an unfinished upload.
_RECENT_CHANGE_S = 60.0
#: Seconds without a change after which an upload counts as complete.
_QUIET_S = 2.0
_MAX_LOOKS = 60
_MAX_ATTEMPTS = 5
_MAX_CONCURRENT_LISTINGS = 16


async def list_models(urls: Sequence[str], open_store: OpenStore) -> list[dict[str, Any]]:
    """List the models of each repository, with fingerprints and problems; or its error."""
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

    With `is_patient` it waits for the end of uploads. `own` is the model's own directory, with its
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
    raise InternalError(
        f"{place.url}/{model} was changed during each copy: load it again when its upload has ended"
    )


def _paths(directory: str) -> set[str]:
    """Return the files of a directory and of those below it."""
    below = Path(directory)
    return {str(path.relative_to(below)) for path in below.rglob("*") if not path.is_dir()}


async def _wait_until_unchanged(
    place: _ModelSource, model: str, objects: list[StoredObject]
) -> list[StoredObject]:
    """Return the objects of a model once no upload changes them. Raises InternalError."""
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
    raise InternalError(
        f"{place.url}/{model} is still being changed: load it again when its upload has ended"
    )


class StorageProcess:
    def __init__(self, line: Lifeline, loop: asyncio.AbstractEventLoop) -> None:
        self._line = line
        self._loop = loop
        self._work: dict[int, asyncio.Task[None]] = {}
        self._mirrors: dict[str, Mirror] = {}
        self._stores = Stores(partial(LifelineReporter(line, 0, "storage").log, "W"))
        self.ended = loop.create_future()
        loop.add_reader(line.fileno(), self._receive)

    def _receive(self) -> None:
        for message, _ in self._line.receive():
            if isinstance(message, wire.Call):
                self._handle_call(message)
        if self._line.ended and not self.ended.done():
            self._loop.remove_reader(self._line.fileno())
            self.ended.set_result(None)

    def _handle_call(self, call: wire.Call) -> None:
        arguments = json.loads(call.arguments)
        if call.verb == "abandon":
            task = self._work.get(arguments["id"])
            if task is not None:
                task.cancel()
        elif call.verb == "remove":
            self._mirror(arguments).remove(arguments["path"])
        else:
            self._work[call.id] = self._loop.create_task(self._run_call(call, arguments))

    async def _run_call(self, call: wire.Call, arguments: dict[str, Any]) -> None:
        try:
            result = json.dumps(await self._execute(call, arguments))
            answer = wire.CallResult(call.id, 0, "", result)
        except ZmqTritonError as error:
            answer = wire.CallResult(call.id, error.number, printable(error.text), "null")
        except Exception as error:  # noqa: BLE001 - whatever a library raises, a load waits for this
            text = printable(f"{type(error).__name__}: {error}")
            answer = wire.CallResult(call.id, InternalError.number, text, "null")
        finally:
            del self._work[call.id]
        self._line.send(answer)
        while self._line.is_backed_up and not self._line.ended:
            await asyncio.sleep(0.01)
            self._line.flush()

    async def _execute(self, call: wire.Call, arguments: dict[str, Any]) -> Any:
        urls = arguments["urls"]
        own = arguments.get("own", ())
        owner = arguments["model"] if own else ""
        open_store = partial(self._stores.open, revisions=arguments["revisions"], owner=owner)
        if call.verb == "names":
            result: Any = await list_models(urls, open_store)
        elif call.verb == "copy":
            model, is_patient = arguments["model"], arguments["is_patient"]
            mirror = self._mirror(arguments)
            result = await copy_model(
                mirror, call.id, model, urls, open_store, is_patient=is_patient, own=own
            )
        else:
            raise InvalidArgument(f"unknown call '{call.verb}'")
        return {"result": result, "revisions": self._stores.revisions}

    def _mirror(self, arguments: dict[str, Any]) -> Mirror:
        directory = arguments["directory"]
        if directory not in self._mirrors:
            self._mirrors[directory] = Mirror(
                directory,
                lambda number, model: LifelineReporter(self._line, number, f"{model}.copy"),
            )
        return self._mirrors[directory]


async def _run(descriptor: int) -> None:
    await StorageProcess(Lifeline.inherited(descriptor), asyncio.get_running_loop()).ended


def main(arguments: list[str]) -> int:
    if len(arguments) != 2 or arguments[0] != "--lifeline":
        sys.stderr.write("usage: -m zmqtriton_extras.storage --lifeline FD\n")
        return 2
    prctl.set_name("storage")
    logs.take_over_output()
    # copies are for stubs of other users, too, if the server lets them into the directory
    os.umask(0o022)
    prctl.hide_memory()
    asyncio.run(_run(int(arguments[1])))
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stderr.flush()
    # the library of stores has threads that abort the process if they find Python at its end
    os._exit(status)
