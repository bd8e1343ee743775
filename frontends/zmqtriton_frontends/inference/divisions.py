"""Models whose requests are divided between two versions, while the newer one is on trial."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

from zmqtriton_floor.wire import TrafficSplit
from zmqtriton_frontends.inference.model_version import ModelVersion, Trial
from zmqtriton_frontends.process.futures import Callbacks


class Divisions(dict[str, TrafficSplit]):
    """The divisions, by models' names."""

    def __init__(self) -> None:
        super().__init__()
        #: Functions that are called when the first division begins, and when the last one ends.
        self.on_change = Callbacks()

    def put(self, split: TrafficSplit) -> None:
        """Begin or change the division of a model, or end it."""
        was_divided = bool(self)
        if split.stable:
            self[split.model] = split
        else:
            self.pop(split.model, None)
        if was_divided != bool(self):
            self.on_change()

    def choose(self, name: str, versions: Mapping[int, ModelVersion]) -> ModelVersion | None:
        """Return the version for requests that name none; None if they are not divided.

        The result is a copy of the stable version, with the trial: requests that name the stable
        version are not divided.
        """
        split = self.get(name)
        if split is None:
            return None
        loaded = {number: version for number, version in versions.items() if version.is_loaded}
        stable, tried = loaded.get(split.stable), loaded.get(split.tried)
        if stable is None:
            return tried
        divided = copy(stable)
        if tried is not None:
            divided.trial = Trial(split, tried, split.header.encode(), split.sticky.encode())
        return divided
