"""A connection to a server's door, with the methods of zmqtriton.embedded.connection.Connection."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from zmqtriton.sdk.process import InferenceRequest, InferenceResponse, Model
from zmqtriton.sdk.wire import (
    INLINE_BYTES,
    Unavailable,
    ZmqTritonError,
    arrays,
    datatypes,
    errors,
    wire,
)
from zmqtriton_extras.door.client.conversation import LATE, Conversation, Inbox, Message

_HELLO_S = 10.0
#: Responses of a stream that may be under way.
_WINDOW = 64
_NO_OPTIONS = InferenceRequest({})[1:]


class DoorChannel:
    """The way to the models of a server through its door."""

    def __init__(self, conversation: Conversation, keys: Mapping[str, Any]) -> None:
        """Set up; `keys` are fields to add to every request."""
        self._conversation = conversation
        self._keys = keys

    def infer(self, model: str, version: str, request: InferenceRequest) -> DoorResponses:
        config = self._needed_config(model, version, request.inputs)
        tensors = arrays.to_tensors(request.inputs, config)
        fields = {**self._named(model, version), **_fields(request, tensors)}
        frames = [tensor.data for tensor in tensors]
        until_s = None
        if request.deadline_s is not None:
            until_s = time.monotonic() + request.deadline_s
        inbox = self._conversation.ask("infer", fields, frames)
        return DoorResponses(self._conversation, inbox, until_s)

    #: The same responses can be iterated by plain code and by coroutines.
    async_infer = infer

    def _needed_config(
        self, model: str, version: str, inputs: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the configuration, or {} if the inputs' datatypes are known without it.

        It is requested each time, since the model may have been loaded again.
        """
        are_arrays = all(isinstance(value, np.ndarray) for value in inputs.values())
        return {} if are_arrays else self.config(model, version)

    def is_ready(self, model: str, version: str) -> bool:
        try:
            return bool(self._answer("model.ready", model, version)["ready"])
        except ZmqTritonError:
            return False

    def metadata(self, model: str, version: str) -> dict[str, Any]:
        return self._answer("model.metadata", model, version)

    def config(self, model: str, version: str) -> dict[str, Any]:
        return self._answer("model.config", model, version)

    def statistics(self, model: str, version: str) -> dict[str, Any]:
        return self._answer("model.statistics", model, version)

    def _answer(self, verb: str, model: str, version: str) -> dict[str, Any]:
        return answer_of(self._conversation, verb, self._named(model, version))

    def _named(self, model: str, version: str) -> dict[str, Any]:
        return {"model": model, "version": version, **self._keys}


def answer_of(
    conversation: Conversation,
    verb: str,
    fields: Mapping[str, Any],
    frames: Any = (),
    timeout_s: float | None = None,
) -> dict[str, Any]:
    """Return the single response to a verb. Raises the server's error, and TimeoutError."""
    until_s = None if timeout_s is None else time.monotonic() + timeout_s
    inbox = conversation.ask(verb, fields, frames)
    try:
        message = conversation.next(inbox, until_s)
    except BaseException:
        conversation.cancel(inbox)
        raise
    if message.kind == "error":
        raise message.error
    return message.fields


def _fields(request: InferenceRequest, tensors: list[wire.Tensor]) -> dict[str, Any]:
    """Return the fields of a request, without empty ones."""
    inputs = [
        {"name": name, "datatype": datatypes.BY_NUMBER[number].name, "shape": shape}
        for name, number, shape, _ in tensors
    ]
    fields: dict[str, Any] = {"inputs": inputs, "credit": _WINDOW}
    if request[1:] == _NO_OPTIONS:
        return fields
    options = {
        "request_id": request.request_id,
        "outputs": list(request.outputs),
        "parameters": dict(request.parameters),
        "priority": request.priority,
        "timeout_us": request.timeout,
        "sequence_id": request.correlation_id,
        "sequence_start": request.sequence_start,
        "sequence_end": request.sequence_end,
    }
    if request.deadline_s is not None:
        options["deadline_us"] = max(1, int(request.deadline_s * 1e6))
    fields.update((name, value) for name, value in options.items() if value)
    return fields


class DoorResponses:
    """The responses to a request, for the connection's thread or for its coroutines."""

    def __init__(self, conversation: Conversation, inbox: Inbox, until_s: float | None) -> None:
        self._conversation = conversation
        self._inbox = inbox
        self._until_s = until_s
        self._is_over = False
        #: Number of responses taken, and of those not yet reported to the server.
        self._taken = self._untold = 0

    def __iter__(self) -> DoorResponses:
        return self

    def __next__(self) -> InferenceResponse:
        if self._is_over:
            raise StopIteration
        try:
            message = self._conversation.next(self._inbox, self._until_s)
        except BaseException:
            self.close()
            raise
        return self._response(message)

    def __aiter__(self) -> DoorResponses:
        return self

    async def __anext__(self) -> InferenceResponse:
        if self._is_over:
            raise StopAsyncIteration
        try:
            message = await self._conversation.next_async(self._inbox, self._until_s)
        except BaseException:
            self.close()
            raise
        return self._response(message)

    def _response(self, message: Message) -> InferenceResponse:
        fields = message.fields
        self._is_over = message.is_final
        error = message.error if message.kind == "error" else None
        if (
            type(error) is errors.DeadlineExceeded
        ):  # the server's clock may be a little ahead of ours
            raise TimeoutError(LATE)
        if error is not None and self._is_over and not self._taken:
            raise error
        self._taken += 1
        self._untold += 1
        if self._untold >= _WINDOW // 2 and not self._is_over:
            self._conversation.grant(self._inbox, self._untold)
            self._untold = 0
        outputs = fields.get("outputs", ())
        tensors = [
            _tensor(output, frame) for output, frame in zip(outputs, message.frames, strict=True)
        ]
        return InferenceResponse(
            fields.get("model", ""),
            fields.get("version", 0),
            fields.get("request_id", ""),
            arrays.to_arrays(tensors),
            fields.get("parameters", {}),
            error,
            self._is_over,
        )

    def close(self) -> None:
        """Cancel the request, if it is not answered."""
        if not self._is_over:
            self._is_over = True
            self._conversation.cancel(self._inbox)

    async def aclose(self) -> None:
        """Cancel the request, if it is not answered."""
        self.close()

    def __enter__(self) -> DoorResponses:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def _tensor(output: Mapping[str, Any], frame: Any) -> wire.Tensor:
    """Return an output; the data of a large one are not copied."""
    data = frame.buffer if len(frame) > INLINE_BYTES else frame.bytes
    return wire.Tensor(
        output["name"], datatypes.BY_NAME[output["datatype"]].number, output["shape"], data
    )


class Door:
    """A connection to the door of a server. Use it with `with`, or close it.

        with zmqtriton.Door("/run/zmqtriton/door") as server:
            for response in server.model("add_sub").infer(inputs={"INPUT0": ..., "INPUT1": ...}):
                response.outputs["OUTPUT0"]

    A connection belongs to one thread at a time; other threads open their own.
    """

    def __init__(
        self, path: str, *, keys: Mapping[str, str] | None = None, timeout_s: float = _HELLO_S
    ) -> None:
        """Connect to a server. Raises Unavailable if none answers at this path in time.

        `keys` has the keys of restricted verbs, by their names.
        """
        self._keys: dict[str, Any] = {"keys": dict(keys)} if keys else {}
        self._conversation = Conversation(path)
        self._channel = DoorChannel(self._conversation, self._keys)
        try:
            answer_of(self._conversation, "server.live", self._keys, timeout_s=timeout_s)
        except TimeoutError:
            self.close()
            raise Unavailable(
                f"the server at '{path}' does not answer; `zmqtriton-ctl servers` lists the "
                "running ones"
            ) from None
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------ the server

    @property
    def live(self) -> bool:
        """True if the server answers."""
        try:
            return bool(self._ask("server.live", timeout_s=_HELLO_S)["live"])
        except (ZmqTritonError, TimeoutError):
            return False

    @property
    def ready(self) -> bool:
        """True if every model of the server is ready."""
        try:
            return bool(self._ask("server.ready", timeout_s=_HELLO_S)["ready"])
        except (ZmqTritonError, TimeoutError):
            return False

    def metadata(self) -> dict[str, Any]:
        """Return the name, the version and the extensions of the server."""
        return self._ask("server.metadata")

    def close(self) -> None:
        """Disconnect, and cancel requests in flight."""
        self._conversation.close()

    def __enter__(self) -> Door:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ------------------------------------------------------------ the models

    def model(self, name: str, version: int | str = "") -> Model:
        """Return a model, which need not be there yet."""
        said = "" if version in (-1, "") else str(version)
        return Model(self._channel, name, said)

    def models(self, *, ready: bool = False) -> list[dict[str, Any]]:
        """Return the repository index: name, version, state and reason of each version."""
        index: list[dict[str, Any]] = self._ask("repository.index", {"ready": ready})["models"]
        return index

    def load(
        self,
        name: str,
        *,
        config: str | None = None,
        files: Mapping[str, bytes] | None = None,
        timeout_s: float | None = None,
    ) -> Model:
        """Load or reload a model; return it when it can be called.

        `config` is JSON in place of its config.pbtxt, `files` are contents by their paths in the
        model's directory. Raises the reason if it is not loaded.
        """
        fields: dict[str, Any] = {"model": name}
        if config is not None:
            fields["config"] = config
        contents = dict(files or {})
        if contents:
            fields["files"] = list(contents)
        self._ask("repository.load", fields, [*contents.values()], timeout_s)
        return self.model(name)

    def unload(
        self, name: str, *, unload_dependents: bool = False, timeout_s: float | None = None
    ) -> None:
        """Unload a model; its running requests are answered."""
        fields = {"model": name, "unload_dependents": unload_dependents}
        self._ask("repository.unload", fields, timeout_s=timeout_s)

    def _ask(
        self,
        verb: str,
        fields: Mapping[str, Any] | None = None,
        frames: Any = (),
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        said = {**(fields or {}), **self._keys}
        return answer_of(self._conversation, verb, said, frames, timeout_s)
