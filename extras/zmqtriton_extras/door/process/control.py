"""The verbs besides inference: health, metadata, statistics, repository, clients' shared memory.

The catalogue and the supervisor answer; this module translates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from zmqtriton.sdk.frontend import Gateway, Readiness, load
from zmqtriton.sdk.wire import InvalidArgument
from zmqtriton_extras.door.process import responses
from zmqtriton_extras.door.process.fields import Fields
from zmqtriton_extras.door.process.responses import Message

#: Prefix of a file's name among the parameters of a load, as in Triton's protocol.
_FILE = "file:"
#: A model's configuration in a header.
_MAX_CONFIG = 1 << 20
#: Name in the log of clients that change something.
_CLIENT = "a client of the door"

Answer = dict[str, Any]
Handle = Callable[[Fields, Sequence[Any]], Awaitable[Answer]]


class Verb(NamedTuple):
    #: The operator may restrict it by this.
    category: str
    handle: Handle


class Control:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._readiness = Readiness(gateway)

    def verbs(self) -> dict[str, Verb]:
        return {
            "server.live": Verb("health", self._server_live),
            "server.ready": Verb("health", self._server_ready),
            "server.metadata": Verb("metadata", self._server_metadata),
            "model.ready": Verb("health", self._model_ready),
            "model.metadata": Verb("metadata", self._model_metadata),
            "model.config": Verb("model-config", self._model_config),
            "model.statistics": Verb("statistics", self._model_statistics),
            "repository.index": Verb("model-repository", self._index),
            "repository.load": Verb("model-repository", self._load),
            "repository.unload": Verb("model-repository", self._unload),
            "shared_memory.register": Verb("shared-memory", self._register),
            "shared_memory.unregister": Verb("shared-memory", self._unregister),
            "shared_memory.status": Verb("shared-memory", self._regions),
        }

    # ------------------------------------------------------------ the server

    async def _server_live(self, fields: Fields, _: Sequence[Any]) -> Answer:
        fields.check_known()
        return {"live": not self._gateway.catalogue.is_repository_missing}

    async def _server_ready(self, fields: Fields, _: Sequence[Any]) -> Answer:
        fields.check_known()
        return {"ready": await self._readiness.of_server()}

    async def _server_metadata(self, fields: Fields, _: Sequence[Any]) -> Answer:
        fields.check_known()
        settings = self._gateway.settings
        return {
            "name": settings.server.id,
            "version": settings.server.server_version,
            "extensions": settings.server.extensions,
        }

    # ------------------------------------------------------------ the models

    async def _model_ready(self, fields: Fields, _: Sequence[Any]) -> Answer:
        name, version = _model(fields)
        return {"ready": await self._readiness.of_model(name, version)}

    async def _model_metadata(self, fields: Fields, _: Sequence[Any]) -> Answer:
        name, version = _model(fields)
        return await self._gateway.catalogue.attempt(
            lambda: self._gateway.catalogue.metadata(name, version)
        )

    async def _model_config(self, fields: Fields, _: Sequence[Any]) -> Answer:
        name, version = _model(fields)
        model = await self._gateway.catalogue.attempt(
            lambda: self._gateway.catalogue.find(name, version)
        )
        return model.config

    async def _model_statistics(self, fields: Fields, _: Sequence[Any]) -> Answer:
        name, version = fields.text("model"), fields.text("version")
        fields.check_known()
        number = -1
        self._gateway.catalogue.check_counted(name, version)
        if name and version:
            number = self._gateway.catalogue.parse_version(version)
        return await self._gateway.statistics(name, number)

    # -------------------------------------------------------- the repository

    async def _index(self, fields: Fields, _: Sequence[Any]) -> Answer:
        is_ready = fields.flag("ready")
        fields.check_known()
        return {"models": await self._gateway.call("index", {"ready": is_ready})}

    async def _load(self, fields: Fields, frames: Sequence[Any]) -> Answer:
        name = fields.name("model")
        parameters = {}
        if fields.has("config"):
            parameters["config"] = fields.text("config", max_length=_MAX_CONFIG)
        paths = fields.items("files")
        fields.check_known()
        if len(paths) != len(frames) or any(type(path) is not str for path in paths):
            raise InvalidArgument("'files' must name the frames behind the header, one for each")
        files = {f"{_FILE}{path}": frame.bytes for path, frame in zip(paths, frames, strict=True)}
        await load(self._gateway, name, parameters, files, _CLIENT)
        return {}

    async def _unload(self, fields: Fields, _: Sequence[Any]) -> Answer:
        name, unload_dependents = fields.name("model"), fields.flag("unload_dependents")
        fields.check_known()
        arguments = {"model": name, "unload_dependents": unload_dependents}
        await self._gateway.call("unload", arguments, _CLIENT)
        return {}

    # ------------------------------------------------- clients' shared memory

    async def _register(self, fields: Fields, _: Sequence[Any]) -> Answer:
        details = {
            "name": fields.name("name"),
            "key": fields.name("key"),
            "offset": fields.count("offset"),
            "byte_size": fields.count("byte_size"),
            "user": fields.user,
        }
        fields.check_known()
        await self._gateway.call("regions.register", {"kind": "system", **details})
        return {}

    async def _unregister(self, fields: Fields, _: Sequence[Any]) -> Answer:
        name = fields.text("name")
        fields.check_known()
        await self._gateway.call("regions.unregister", {"kind": "system", "name": name})
        return {}

    async def _regions(self, fields: Fields, _: Sequence[Any]) -> Answer:
        name = fields.text("name")
        fields.check_known()
        arguments = {"kind": "system", "name": name}
        return {"regions": await self._gateway.call("regions.status", arguments)}


def _model(fields: Fields) -> tuple[str, str]:
    name, version = fields.name("model"), fields.text("version")
    fields.check_known()
    return name, version


class ControlExchange:
    """A verb that is being answered."""

    def __init__(
        self, verb: str, answering: Awaitable[Answer], number: int, done: Callable[[Message], None]
    ) -> None:
        """Set up; `done` gets the answer."""
        self._verb = verb
        self._number = number
        self._done = done
        self._task = asyncio.ensure_future(answering)
        self._task.add_done_callback(self._answer)

    def _answer(self, task: asyncio.Future[Answer]) -> None:
        if task.cancelled():
            return
        problem = task.exception()
        if problem is not None:
            self._done(responses.error(self._number, responses.failure(self._verb, problem)))
            return
        try:
            message = responses.answer(self._number, task.result())
        except (ValueError, TypeError, OverflowError) as unsendable:
            message = responses.error(self._number, responses.failure(self._verb, unsendable))
        self._done(message)

    def cancel(self) -> None:
        self._task.cancel()

    def grant(self, responses: int) -> None:
        """Do nothing: the verb has only one response."""
