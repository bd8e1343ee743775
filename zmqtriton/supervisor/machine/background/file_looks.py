"""Looks at the files of models in a thread: a disk may be slow, and a model have many files."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Mapping
from functools import partial

from zmqtriton.repository.place import ModelPlace
from zmqtriton.supervisor.actions import FileReport
from zmqtriton.supervisor.machine.background.worker import Worker
from zmqtriton_floor.errors import ZmqTritonError


class FileLooks:
    def __init__(
        self, selector: selectors.BaseSelector, on_looked: Callable[[int, FileReport], None]
    ) -> None:
        self._worker = Worker(selector, "files")
        self._on_looked = on_looked

    def look(self, ticket: int, places: Mapping[str, ModelPlace], config_name: str) -> None:
        """Look at the files of these models, by name."""
        look = partial(_look, places, config_name)
        self._worker.submit(look, partial(self._on_looked, ticket))

    def close(self) -> None:
        self._worker.close()


def _look(places: Mapping[str, ModelPlace], config_name: str) -> FileReport:
    began_s = time.monotonic()
    fingerprints = {}
    for name, place in places.items():
        try:
            fingerprints[name] = place.scan(name, config_name).fingerprint
        except (ZmqTritonError, OSError) as error:
            fingerprints[name] = f"unreadable: {error}"
    return FileReport(fingerprints, time.monotonic() - began_s)
