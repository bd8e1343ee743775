"""A connection to a server on this machine, which asks its models without HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from zmqtriton.ctl import client
from zmqtriton.embedded.guest import Guest
from zmqtriton.embedded.model import Model
from zmqtriton.embedded.shared_arrays import array_in, size_of
from zmqtriton_floor.errors import Unavailable
from zmqtriton_frontends.gateway.loads import load
from zmqtriton_frontends.metrics_api.scraper import Scraper


class Connection:
    """Takes part in a server. To be used with `with`, or closed."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest

    # ------------------------------------------------------------ the server

    @property
    def live(self) -> bool:
        """True while the server runs and this is connected to it."""
        return self._guest.is_open

    @property
    def ready(self) -> bool:
        """True if every model of the server is."""
        try:
            return self._guest.ask(self._guest.gateway.catalogue.is_ready)
        except Unavailable:
            return False

    def metadata(self) -> dict[str, Any]:
        """Return the name and version of the server."""
        settings = self._guest.ask(lambda: self._guest.gateway.settings)
        return {"name": settings["id"], "version": settings["server_version"]}

    def metrics(self) -> str:
        """Return the server's metrics as Prometheus reads them."""
        return self._guest.wait(Scraper(self._guest.gateway).scrape())

    def close(self) -> None:
        """Leave the server: what is in flight is cancelled, and nobody else's."""
        self._guest.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def empty(self, shape: Sequence[int], dtype: Any = np.float32) -> Any:
        """Return a new array in the memory that models read: as an input it is not copied.

        Its contents are undefined. Raises Unavailable if there is no memory.
        """
        payload = self._guest.gateway.payload
        room = self._guest.wait(payload.segments.allocate(size_of(shape, dtype)))
        return array_in(payload.arena, room, shape, dtype)

    # ------------------------------------------------------------ the models

    def model(self, name: str, version: int | str = "") -> Model:
        """Return a model, which need not be there yet."""
        return Model(self._guest, name, "" if version in (-1, "") else str(version))

    def models(self, *, ready: bool = False) -> list[dict[str, Any]]:
        """Return the repository index: name, version, state and reason of each version."""
        call = self._guest.gateway.call("index", {"ready": ready})
        found: list[dict[str, Any]] = self._guest.wait(call)
        return found

    def load(
        self,
        name: str,
        *,
        config: str | None = None,
        files: dict[str, bytes] | None = None,
        timeout_s: float | None = None,
    ) -> Model:
        """Load a model, or load it anew; return it when it can be asked.

        `config` is JSON in place of its config.pbtxt, `files` are contents by their paths in the
        model's directory. Raises why it is not loaded.
        """
        parameters = {} if config is None else {"config": config}
        given = {f"file:{path}": content for path, content in (files or {}).items()}
        work = load(self._guest.gateway, name, parameters, given)
        self._guest.wait(work, timeout_s)
        return self.model(name)

    def unload(
        self, name: str, *, unload_dependents: bool = False, timeout_s: float | None = None
    ) -> None:
        """Unload a model; what it has begun is answered."""
        arguments = {"model": name, "unload_dependents": unload_dependents}
        self._guest.wait(self._guest.gateway.call("unload", arguments), timeout_s)


def connect(id: str = "", *, path: str = "") -> Connection:
    """Connect to a server of this user: the newest, or the one with this id, pid or port.

    `path` is its runtime directory, if that is neither named nor in the usual place. Raises
    NoServerError if there is none.
    """
    found = client.connect(client.ServerSelector(path, id))
    return Connection(Guest(found.line))
