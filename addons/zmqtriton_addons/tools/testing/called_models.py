"""The models that a model under test calls by BLS, played by functions of the test.

The stub's own BLS client speaks, to a connection that answers at once in the same process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from zmqtriton_floor import wire
from zmqtriton_floor.arrays import to_arrays, to_tensors
from zmqtriton_floor.errors import NotFound, ZmqTritonError
from zmqtriton_floor.settings.codec import encode
from zmqtriton_floor.settings.stub import StubSettings
from zmqtriton_stub.broker import Bell, BlsClient

#: Takes arrays by name and returns some, or an iterable of such for each response of a stream.
Answer = Callable[[Mapping[str, Any]], Mapping[str, Any] | Iterable[Mapping[str, Any]]]
#: Nobody checks it here.
_TOKEN = bytes(16)
_Reply = tuple[wire.Reply, bytes]


class CalledModels:
    """The answers of other models, by their names."""

    def __init__(self, model: str, answers: Mapping[str, Answer]) -> None:
        self._model = model
        self._answers = answers
        #: What a function of the test has raised; the test is to see it, not the model alone.
        self.raised: BaseException | None = None

    def make_client(self) -> BlsClient:
        """Return what `exec` and `async_exec` ask."""
        memory: Any = _NoMemory()
        bootstrap = wire.Bootstrap(0, _TOKEN, "", "", 1, encode(StubSettings()))
        return BlsClient(bootstrap, memory, dict, lambda: None, dial=self._dial)

    def _dial(self, bootstrap: wire.Bootstrap) -> Any:
        return _Connection(self._replies)

    def _replies(self, row: wire.Request, body: bytes) -> Iterator[_Reply]:
        """Return the replies to one call, the last of which is final."""
        try:
            answer = self._answer(row, body)
            if isinstance(answer, Mapping):
                yield wire.Reply(row.id, 0, "", wire.FINAL), _body(answer)
                return
            number = 0
            for number, outputs in enumerate(answer, 1):
                yield wire.Reply(row.id, 0, "", 0, number - 1), _body(outputs)
            yield wire.Reply(row.id, 0, "", wire.FINAL, number), b""
        except ZmqTritonError as error:
            yield wire.Reply(row.id, error.number, error.text, wire.FINAL), b""
        except BaseException as error:  # noqa: BLE001 - raised again where the test has called
            self.raised = error
            text = f"{type(error).__name__}: {error}"
            yield wire.Reply(row.id, ZmqTritonError.number, text, wire.FINAL), b""

    def _answer(
        self, row: wire.Request, body: bytes
    ) -> Mapping[str, Any] | Iterable[Mapping[str, Any]]:
        if row.model not in self._answers:
            raise NotFound(
                f"model '{self._model}' calls '{row.model}', and this test has no answer for it: "
                f"load_model(..., bls={{'{row.model}': function}})"
            )
        return self._answers[row.model](to_arrays(wire.decode_request(body).inputs))


def _body(outputs: Mapping[str, Any]) -> bytes:
    return wire.encode_body(wire.ResponseBody({}, to_tensors(outputs, {})))


class _Connection:
    """In place of the DEALER to the broker; only what the client uses."""

    is_open = True

    def __init__(self, answer: Callable[[wire.Request, bytes], Iterable[_Reply]]) -> None:
        self._answer = answer
        self._bell = Bell()  # never rung: replies are here before anybody waits
        self.messages: deque[list[bytes]] = deque()

    def fileno(self) -> int:
        return self._bell.descriptor

    def put(self, frames: Sequence[bytes]) -> None:
        message = wire.decode(frames[0])
        if type(message) is wire.Infer:
            for reply, body in self._answer(message.requests[0], frames[1]):
                self.messages.append([wire.encode(wire.Replies([reply])), body])

    def has_input(self) -> bool:
        return bool(self.messages)

    def finish(self) -> None:
        """Do nothing: a queued response has arrived."""

    def close(self) -> None:
        self.messages.clear()


class _NoMemory:
    """In place of the memory that processes share."""

    def answered(self, blocks: Sequence[wire.Block]) -> None:
        """Do nothing: there are no blocks."""

    def release(self, message: wire.Release) -> None:
        """Do nothing: nothing is leased."""
