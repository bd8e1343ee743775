"""A connection to a server on this machine, to call its models without HTTP.

The guest sends the requests, and receives their responses.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Protocol, TypeVar

import numpy as np

from zmqtriton import addons
from zmqtriton.control_client import ServerIdentity, ServerSelector, own_name
from zmqtriton.embedded.guest import Guest
from zmqtriton.embedded.guest_sink import Coming, GuestSink
from zmqtriton.embedded.model import Model
from zmqtriton.embedded.own_inputs import array_over
from zmqtriton.embedded.requests import InferenceRequest, InferenceResponse
from zmqtriton_floor.descriptions import described
from zmqtriton_floor.errors import DeadlineExceeded, Unavailable, Unsupported, ZmqTritonError
from zmqtriton_floor.settings.offers import Hook
from zmqtriton_frontends.gateway.control_calls import on_behalf_of
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.gateway.loads import load

Options = TypeVar("Options")

_LOOK_S = 0.005
#: Maximum time for what bound models have begun, when this process leaves the server.
_UNBIND_WITHIN_S = 30.0
#: Text in the server's copy of a bound model, for a reader who looks for the code there.
_BOUND = "# Model '{name}' is bound by process {pid}, which has its code and runs it.\n"
_LATE = "the request's deadline has passed"


class Scraper(Protocol):
    async def scrape(self) -> str:
        """Return the text of the page of metrics."""


class GuestChannel:
    """The way to the models of a server that this process takes part in."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest

    def infer(self, model: str, version: str, request: InferenceRequest) -> Responses:
        return Responses(self._guest, model, version, request)

    def async_infer(self, model: str, version: str, request: InferenceRequest) -> AsyncResponses:
        return AsyncResponses(self.infer(model, version, request))

    def is_ready(self, model: str, version: str) -> bool:
        catalogue = self._guest.gateway.catalogue

        def ask() -> bool:
            try:
                return catalogue.is_model_ready(model, version)
            except ZmqTritonError:
                return False

        return self._guest.ask(ask)

    def metadata(self, model: str, version: str) -> dict[str, Any]:
        catalogue = self._guest.gateway.catalogue
        return self._guest.ask(lambda: catalogue.metadata(model, version))

    def config(self, model: str, version: str) -> dict[str, Any]:
        catalogue = self._guest.gateway.catalogue
        return self._guest.ask(lambda: catalogue.find(model, version).config)

    def statistics(self, model: str, version: str) -> dict[str, Any]:
        async def ask() -> dict[str, Any]:
            gateway = self._guest.gateway
            gateway.catalogue.check_counted(model, version)
            return await gateway.statistics(model, int(version or -1))

        return self._guest.wait(ask())


class Responses(Iterator[InferenceResponse], AbstractContextManager["Responses"]):
    """The responses to one request, for a thread."""

    def __init__(self, guest: Guest, name: str, version: str, request: InferenceRequest) -> None:
        """Send the request. Raises Unavailable without a connection."""
        self._name = name
        within_s = request.deadline_s
        self._guest = guest
        self._until_s = None if within_s is None else time.monotonic() + within_s
        #: The next response; None when there is nothing more to come.
        self.coming: Coming | None = None
        request, kept = guest.own(name, version, request)
        self._stream = GuestSink(guest.entrance, name, version, request, kept, guest.streams)
        self._await(self._stream.begin)

    def __repr__(self) -> str:
        return f"<Responses of '{self._name}': take them by `for`, or the next one by next()>"

    def __next__(self) -> InferenceResponse:
        if self.coming is None:
            raise StopIteration
        with self.receiving():
            response = self.coming.result(self.left_s())
        self.proceed(response)
        if response is None:
            raise StopIteration
        return response

    @contextmanager
    def receiving(self) -> Iterator[None]:
        """Cancel the request if waiting for its next response raises."""
        try:
            yield
        except (FutureTimeoutError, asyncio.TimeoutError, DeadlineExceeded):
            self.close()
            raise TimeoutError(_LATE) from None
        except BaseException:
            self.close()
            raise

    def left_s(self) -> float | None:
        """Return the time that is left for the responses; None without a deadline."""
        return None if self._until_s is None else max(0.0, self._until_s - time.monotonic())

    def proceed(self, response: InferenceResponse | None) -> None:
        """Request the response after this one, unless this is the last."""
        self.coming = None
        if response is not None and not response.final:
            self._await(self._stream.proceed)

    def _await(self, ask: Callable[[Coming], None]) -> None:
        """Have the stream get the next response. Raises Unavailable without a connection."""
        coming: Coming = Future()
        self._guest.soon(ask, coming)
        self.coming = coming

    def close(self) -> None:
        """Cancel the request, if it is not answered."""
        if self.coming is not None:
            self.coming = None
            with suppress(ZmqTritonError):  # with the connection everything ends
                self._guest.soon(self._stream.close)

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_stream"):
            self.close()


class AsyncResponses(AsyncIterator[InferenceResponse]):
    """The responses to one request, for a coroutine of any event loop."""

    def __init__(self, responses: Responses) -> None:
        self._responses = responses

    async def __anext__(self) -> InferenceResponse:
        responses = self._responses
        if responses.coming is None:
            raise StopAsyncIteration
        with responses.receiving():
            coming = asyncio.shield(asyncio.wrap_future(responses.coming))
            response = await asyncio.wait_for(coming, responses.left_s())
        responses.proceed(response)
        if response is None:
            raise StopAsyncIteration
        return response

    def close(self) -> None:
        """Cancel the request, if it is not answered."""
        self._responses.close()

    async def aclose(self) -> None:
        self.close()


#: Returns the function that a program calls as `zmqtriton.connect().MODEL(…)`, or None.
CALLER = Hook[Callable[[Model], Callable[..., Any] | None]]("embedded.caller")
#: Makes the object that collects the server's metrics in the format of Prometheus.
SCRAPER = Hook[Callable[[Gateway], Scraper]]("embedded.scraper")


class Connection(AbstractContextManager["Connection"]):
    """A connection to a server, as one of its frontends. Use it with `with`, or close it."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest

    def __repr__(self) -> str:
        guest: Guest | None = self.__dict__.get("_guest")  # it comes when a server is started
        if guest is None or not guest.is_open:
            return f"<{type(self).__name__}: not connected>"
        names = ", ".join(model.name for model in guest.gateway.catalogue.newest())
        return f"<{type(self).__name__} '{guest.gateway.settings.server.id}', models: {names}>"

    def __getattr__(self, name: str) -> Any:
        """Return a model as a function, if an add-on makes one of it."""
        is_own = name.startswith("_")
        call = None if is_own else self._function(name)
        if call is None:
            raise AttributeError(name if is_own else self._lack_of(name))
        return call

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._function_names()]

    def _function(self, name: str) -> Any:
        make = CALLER.first_of(addons.offers())
        return make(self.model(name)) if make else None

    def _function_names(self) -> list[str]:
        models = self._guest.gateway.catalogue.newest() if "_guest" in vars(self) else ()
        return [each.name for each in models if self._function(each.name)]

    def _lack_of(self, name: str) -> str:
        if not self.live:
            return f"there is no server to ask for '{name}'"
        server = ServerIdentity.from_document(self.control("identity")).describe()
        names = ", ".join(self._function_names()) or "none"
        return f"the server {server} has no function '{name}', it has: {names}"

    # ------------------------------------------------------------ the server

    @property
    def live(self) -> bool:
        """True while the server runs and this is connected to it."""
        return self._guest.is_open

    @property
    def ready(self) -> bool:
        """True if every model of the server is ready."""
        try:
            return self._guest.ask(self._guest.gateway.catalogue.is_ready)
        except Unavailable:
            return False

    def metadata(self) -> dict[str, Any]:
        """Return the name, version and extensions of the server."""
        server = self._guest.ask(lambda: self._guest.gateway.settings).server
        return {
            "name": server.id,
            "version": server.server_version,
            "extensions": [*server.extensions],
        }

    def metrics(self) -> str:
        """Return the server's metrics as Prometheus reads them."""
        make = SCRAPER.first_of(addons.offers())
        if make is None:
            raise Unsupported("the add-on 'metrics' is not installed")
        return self._guest.wait(make(self._guest.gateway).scrape())

    def call(self, name: str, /, *values: Any, **named: Any) -> Any:
        """Call the function of this name, also if the connection has such a method (`load`)."""
        if not isinstance(name, str):
            raise TypeError(f"the name of a function must be a string, got {described(name)}")
        return self.__getattr__(name)(*values, **named)

    def control(self, verb: str, /, **arguments: Any) -> Any:
        """Return the answer of a control call, as the commands of `zmqtriton-ctl` make them."""
        return self._guest.wait(self._guest.gateway.call(verb, arguments))

    def options_of(self, add_on: str, kind: type[Options]) -> Options:
        """Return options of an add-on, which `kind` has as fields with their defaults."""
        return self._guest.ask(lambda: self._guest.gateway.settings).options_of(add_on, kind)

    def close(self) -> None:
        """Leave the server: cancel this process's requests in flight, and no others.

        Its bound models are unloaded first, after they have answered the requests that they began.
        """
        self._unbind(_UNBIND_WITHIN_S)
        self._guest.close()

    def _unbind(self, within_s: float) -> None:
        """Unload the models that this process has bound, and wait until they have ended."""
        hosting, deadline_s = self._guest.hosting, time.monotonic() + within_s
        with suppress(ZmqTritonError, FutureTimeoutError):  # a server that ends unloads them itself
            for model in hosting.models:
                self.unload(model, timeout_s=max(0.0, deadline_s - time.monotonic()))
        while hosting.is_running and self._guest.is_open and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)

    def __exit__(self, *error: object) -> None:
        self.close()

    def empty(self, shape: Sequence[int], dtype: Any = np.float32) -> Any:
        """Return a new array in the memory that models read: as an input it is not copied.

        Do not write to it between a request and its last response. Responses never change with it.
        Its contents are undefined. Raises Unavailable if there is no memory.
        """
        payload = self._guest.gateway.payload
        room = self._guest.wait(payload.segments.allocate(size_of(shape, dtype), is_users=True))
        return array_over(payload.arena, room).view(dtype).reshape(shape)

    # ------------------------------------------------------------ the models

    def model(self, name: str, version: int | str = "") -> Model:
        """Return a model, which need not be there yet."""
        which = "" if version in (-1, "") else str(version)
        return Model(GuestChannel(self._guest), name, which)

    def models(self, *, ready: bool = False) -> list[dict[str, Any]]:
        """Return the repository index: name, version, state and reason of each version."""
        return list(self._guest.wait(self._guest.gateway.call("index", {"ready": ready})))

    def load(
        self,
        name: str,
        *,
        config: str | None = None,
        files: dict[str, bytes] | None = None,
        timeout_s: float | None = None,
    ) -> Model:
        """Load or reload a model, and return it when it can be called.

        `config` is JSON in place of its config.pbtxt, `files` are contents by their paths in the
        model's directory. Raises the reason if it is not loaded.
        """
        parameters = {} if config is None else {"config": config}
        contents = {f"file:{path}": content for path, content in (files or {}).items()}
        work = load(self._guest.gateway, name, parameters, contents)
        with on_behalf_of(own_name()):
            self._guest.wait(work, timeout_s)
        return self.model(name)

    def bind(
        self,
        name: str,
        model_classes: Any,
        *,
        config: Mapping[str, Any] | None = None,
        version: int = 1,
        processes: bool = False,
        on_report: Callable[[str], object] = lambda report: None,
        timeout_s: float | None = None,
    ) -> Model:
        """Serve a model from this process, and return it when it can be called.

        A class like TritonPythonModel, or one for each instance. All run here, each on a thread of
        its own; with `processes` each runs in a process that multiprocessing starts, whose texts
        from `hosted_process.report` come to `on_report`. `config` has the fields of config.pbtxt. A
        model of this name is replaced without a failed request. Raises the reason if the model is
        not loaded. If the call is interrupted, the model may be loaded, and is unloaded with the
        others.
        """
        classes = [*model_classes] if isinstance(model_classes, list | tuple) else [model_classes]
        whole = {
            "backend": "python",
            "instance_group": [{"count": len(classes), "kind": "KIND_CPU"}],
            "version_policy": {"specific": {"versions": [version]}},
            **(config or {}),
        }
        source = _BOUND.format(name=name, pid=os.getpid()).encode()
        hosting = self._guest.hosting
        binding = hosting.bind(name, classes, in_processes=processes, on_report=on_report)
        work = load(
            self._guest.gateway,
            name,
            {"config": json.dumps(whole)},
            {f"file:{version}/model.py": source},
            binding=binding,
        )
        try:
            self._guest.wait(work, timeout_s)
        except ZmqTritonError:
            hosting.release(binding)
            raise
        hosting.replace(name, binding)
        return self.model(name)

    def unload(
        self, name: str, *, unload_dependents: bool = False, timeout_s: float | None = None
    ) -> None:
        """Unload a model; its running requests are answered."""
        arguments = {"model": name, "unload_dependents": unload_dependents}
        with on_behalf_of(own_name()):
            self._guest.wait(self._guest.gateway.call("unload", arguments), timeout_s)
        self._guest.hosting.replace(name)


def connect(id: str = "", *, path: str = "") -> Connection:
    """Connect to a server of this user: the newest, or the one with this id, pid or port.

    `path` is its runtime directory, if that is neither named nor in the usual place. Raises
    NoServerError if there is none.
    """
    return Connection(Guest(ServerSelector(path, id).connect().line))


def size_of(shape: Sequence[int], dtype: Any) -> int:
    """Return the size of an array in bytes. Raises TypeError for objects."""
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise TypeError(f"{kind} has no bytes to share: use a numeric type")
    return int(math.prod(shape) * kind.itemsize)
