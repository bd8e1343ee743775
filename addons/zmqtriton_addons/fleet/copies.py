"""The copies of models at one moment, as they are seen and as tasks change them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from zmqtriton_addons.fleet.replicas import ModelLoad


class NodeView(NamedTuple):
    """A node whose server answers: the models that it should serve, and those that are ready."""

    models: frozenset[str] = frozenset()
    ready: frozenset[str] = frozenset()
    loads: Mapping[str, ModelLoad] = {}


#: A node and a model.
Place = tuple[str, str]


class Copies:
    def __init__(
        self,
        seen: Mapping[str, NodeView],
        models: Collection[str],
        *,
        loading: Iterable[Place],
        leaving: Collection[Place],
        failed: Collection[Place],
    ) -> None:
        """`failed` are places where the last load has failed; a copy there does not count."""
        self._seen = seen
        self._held = {node: set(view.models.intersection(models)) for node, view in seen.items()}
        self._loading = {place for place in loading if place[0] in seen}
        for node, model in self._loading:
            self._held[node].add(model)
        self._leaving = leaving
        self._failed = failed

    @property
    def nodes(self) -> list[str]:
        return sorted(self._seen)

    def has(self, node: str, model: str) -> bool:
        """Return whether a node has a copy, or is loading one."""
        return model in self._held[node] and not self.is_broken(node, model)

    def stays(self, node: str, model: str) -> bool:
        """Return whether it has one that has not been drained to go."""
        return self.has(node, model) and (node, model) not in self._leaving

    def is_ready(self, node: str, model: str) -> bool:
        return model in self._seen[node].ready

    def is_broken(self, node: str, model: str) -> bool:
        """Return whether a node lists a model that it could not load."""
        place = node, model
        is_idle = place not in self._loading and not self.is_ready(node, model)
        return is_idle and place in self._failed and model in self._held[node]

    def having(self, model: str) -> set[str]:
        return {node for node in self._seen if self.has(node, model)}

    def staying(self, model: str) -> set[str]:
        return {node for node in self._seen if self.stays(node, model)}

    def ready(self, model: str) -> set[str]:
        return {node for node in self._seen if self.is_ready(node, model)}

    def count(self, node: str, without: str = "") -> int:
        """Return how many models stay on a node, but for one."""
        return sum(self.stays(node, m) for m in self._held[node] if m != without)

    def load(self, model: str) -> ModelLoad:
        """Return the load of all copies together that take requests."""
        loads = (
            view.loads.get(model, ModelLoad())
            for node, view in self._seen.items()
            if (node, model) not in self._leaving
        )
        return sum(loads, ModelLoad())

    def begin_load(self, node: str, model: str) -> None:
        """Take note that a node loads a model from now on."""
        self._loading.add((node, model))
        self._held[node].add(model)
