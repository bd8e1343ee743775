"""A connection to a server's door, with the methods of zmqtriton.embedded.connection.Connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zmqtriton.embedded import Model
from zmqtriton_addons.door.client.channel import DoorChannel, answer_of
from zmqtriton_addons.door.client.conversation import Conversation
from zmqtriton_floor.errors import Unavailable, ZmqTritonError

_HELLO_S = 10.0


class Door:
    """A connection to the door of a server. To be used with `with`, or closed.

        with zmqtriton.Door("/run/zmqtriton/door") as server:
            for response in server.model("add_sub").infer(inputs={"INPUT0": ..., "INPUT1": ...}):
                response.outputs["OUTPUT0"]

    It belongs to one thread at a time; others open their own.
    """

    def __init__(
        self, path: str, *, keys: Mapping[str, str] | None = None, timeout_s: float = _HELLO_S
    ) -> None:
        """Connect. Raises Unavailable if nobody answers at this path in time.

        `keys` are those of verbs that the operator restricts, by their names.
        """
        self._keys: dict[str, Any] = {"keys": dict(keys)} if keys else {}
        self._conversation = Conversation(path)
        self._channel = DoorChannel(self._conversation, self._keys)
        try:
            answer_of(self._conversation, "server.live", self._keys, timeout_s=timeout_s)
        except TimeoutError:
            self.close()
            raise Unavailable(f"the server at '{path}' does not answer") from None
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
        """True if every model of the server is."""
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
        """Load a model, or load it anew; return it when it can be asked.

        `config` is JSON in place of its config.pbtxt, `files` are contents by their paths in the
        model's directory. Raises why it is not loaded.
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
        """Unload a model; what it has begun is answered."""
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
