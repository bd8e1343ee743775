"""All generations that the broker serves, by number and by name. Knows neither peers nor clocks."""

from __future__ import annotations

from collections.abc import Iterator

from zmqtriton.broker.queues import Generation
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable, Unsupported


class Generations:
    def __init__(self) -> None:
        self._by_number: dict[int, Generation] = {}
        self._by_name: dict[tuple[str, int], Generation] = {}
        #: Those that are gone, and the one that takes what was still on its way to them.
        self._successors: dict[int, Generation] = {}

    def __getitem__(self, number: int) -> Generation:
        return self._by_number[number]

    def __iter__(self) -> Iterator[Generation]:
        return iter(list(self._by_number.values()))

    def get(self, number: int) -> Generation | None:
        return self._by_number.get(number)

    def serve(self, message: wire.Serve) -> None:
        new = Generation(message.generation, message.model, message.version, message.config)
        self._by_number[new.number] = new
        old = self._by_name.get((new.model, new.version))
        if old is not None and old.takes_what_fits(new):
            self._successors[old.number] = new
        self._by_name[new.model, new.version] = new

    def remove(self, number: int) -> Generation | None:
        """The one that was there."""
        removed = self._by_number.pop(number, None)
        if removed is None:
            return None
        if self._by_name.get((removed.model, removed.version)) is removed:
            del self._by_name[removed.model, removed.version]
        for earlier, successor in list(self._successors.items()):
            if successor is removed:
                del self._successors[earlier]
        return removed

    def find(self, row: wire.Request) -> Generation:
        """The one that a request goes to; raises Triton's errors."""
        if not row.generation:
            return self._find_by_name(row)
        generation = self._by_number.get(row.generation)
        if generation is None or generation.is_drained:
            # A frontend that had not heard of a reload yet may still name the old one.
            generation = self._successors.get(row.generation)
        if generation is None:
            raise Unavailable("the model was unloaded while the request was on its way")
        return generation

    def _find_by_name(self, row: wire.Request) -> Generation:
        """For a model that asks: it knows the other one's name and no more."""
        model = row.model
        ready = {
            version: generation
            for (name, version), generation in self._by_name.items()
            if name == model and not generation.is_retired
        }
        number = max(ready, default=0) if row.version == -1 else row.version
        found = ready.get(number)
        where = f"Model {model} - Error when running inference: "
        if found is None:
            raise Unavailable(
                f"{where}Failed for execute the inference request. Model '{model}' is not ready."
            )
        if found.is_decoupled and row.flags & wire.ONE_RESPONSE:
            raise Unsupported(
                f"{where}Model {model} is using the decoupled. The current BLS request call "
                "doesn't support models using the decoupled transaction policy. Please use "
                "'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled "
                "models.'"
            )
        return found

    def choose(self, model: str, version: int) -> list[Generation]:
        """Those of a model, or of all without a name; of all its versions with -1."""
        return [
            generation
            for (name, number), generation in sorted(self._by_name.items())
            if model in ("", name) and version in (-1, number)
        ]
