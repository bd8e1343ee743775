"""Ensembles: is the graph of steps sound, from the ensemble's configuration alone?

Called at every load; `members` then compares with the models that the steps call. The work grows
with the length of the configuration, never with inputs times outputs. The texts are Triton's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zmqtriton.config.backends import ENSEMBLE
from zmqtriton.config.errors import ConfigError


def member_names(config: Any) -> list[str]:
    """The models an ensemble calls, each once, in the order of its steps; [] for other models."""
    return list(dict.fromkeys(step.model_name for step in config.ensemble_scheduling.step))


def member_steps(config: Any) -> list[tuple[str, int]]:
    """Model and version of each step; -1 is the newest."""
    return [(step.model_name, step.model_version or -1) for step in config.ensemble_scheduling.step]


def check_steps(config: Any) -> None:
    """Refuses an ensemble whose tensors are not all connected from its inputs to its outputs."""
    _check_sections(config)
    for index, step in enumerate(config.ensemble_scheduling.step):
        _check_step(config, index, step)
    graph = Graph.of(config)
    for tensor in config.input:
        if tensor.name not in graph.tensors():
            raise ConfigError(
                f"ensemble input '{tensor.name}' for ensemble {config.name}' is not used"
            )
    ready = graph.reachable(tensor.name for tensor in config.input)
    for tensor in config.output:
        _check_output(config.name, tensor.name, graph, ready)
    outputs = {tensor.name for tensor in config.output}
    for name in sorted(graph.tensors() - outputs):
        if name not in ready or name not in graph.readers:
            raise ConfigError(f"ensemble tensor '{name}' is unused in ensemble '{config.name}'")


def _check_sections(config: Any) -> None:
    name = config.name
    if config.platform != ENSEMBLE:
        raise ConfigError(
            f"ensemble scheduling cannot be set for model '{name}' whose platform is not {ENSEMBLE}"
        )
    if config.instance_group:
        raise ConfigError(f"instance group should not be specified for ensemble '{name}'")
    if config.HasField("optimization"):
        raise ConfigError(f"optimization should not be specified for ensemble '{name}'")
    if config.model_warmup:
        raise ConfigError(f"model_warmup can not be specified for ensemble '{name}'")
    if not config.ensemble_scheduling.step:
        raise ConfigError(f"must specify 'step' for ensemble '{name}'")


def _check_step(config: Any, index: int, step: Any) -> None:
    for section in ("model_name", "input_map", "output_map"):
        if not getattr(step, section):
            raise ConfigError(
                f"must specify '{section}' in step {index} of ensemble '{config.name}'"
            )
    if step.model_name == config.name:
        raise ConfigError(_circle(config.name, config.name))


def _check_output(ensemble: str, name: str, graph: Graph, ready: set[str]) -> None:
    if name not in graph.tensors():
        raise ConfigError(f"ensemble output '{name}' for ensemble {ensemble}' is not used")
    if name in ready:
        return
    text = f"output '{name}' for ensemble '{ensemble}' is not written"
    source = graph.loose_end(name, ready)
    if source != name:
        text += f": at least one of its depending tensors, '{source}', is not connected"
    raise ConfigError(text)


@dataclass
class Graph:
    """Which step writes a tensor, and which steps read it."""

    inputs: list[set[str]] = field(default_factory=list)
    outputs: list[list[str]] = field(default_factory=list)
    writer: dict[str, int] = field(default_factory=dict)
    readers: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Any) -> Graph:
        graph = cls()
        for index, step in enumerate(config.ensemble_scheduling.step):
            graph.add(config.name, index, step)
        return graph

    def add(self, ensemble: str, index: int, step: Any) -> None:
        self.inputs.append(set(step.input_map.values()))
        self.outputs.append(sorted(step.output_map.values()))
        for name in self.outputs[index]:
            if name in self.writer:
                raise ConfigError(
                    f"ensemble tensor '{name}' can appear in an output map only once for ensemble "
                    f"'{ensemble}' step {index}"
                )
            self.writer[name] = index
        for name in self.inputs[index]:
            self.readers.setdefault(name, []).append(index)

    def tensors(self) -> set[str]:
        return self.writer.keys() | self.readers.keys()

    def reachable(self, given: Iterable[str]) -> set[str]:
        """All tensors that have a value once the given ones have."""
        ready = set(given)
        for step in self.run_order(ready):
            ready.update(self.outputs[step])
        return ready

    def run_order(self, given: Iterable[str]) -> list[int]:
        """The steps that can run once the given tensors have a value, each after its inputs."""
        missing = [len(inputs) for inputs in self.inputs]
        queue = sorted(given)
        ready = set(queue)
        order: list[int] = []
        for name in queue:
            for step in self.readers.get(name, ()):
                missing[step] -= 1
                if missing[step] == 0:
                    order.append(step)
                    written = [output for output in self.outputs[step] if output not in ready]
                    ready.update(written)
                    queue.extend(written)
        return order

    def loose_end(self, name: str, ready: set[str]) -> str:
        """Where the way back from an unwritten tensor ends, for the error; circles end it too."""
        seen = {name}
        while name in self.writer:
            before = sorted(self.inputs[self.writer[name]] - ready - seen)
            if not before:
                break
            name = before[0]
            seen.add(name)
        return name


def check_circle(name: str, members: Mapping[str, Sequence[str]]) -> None:
    """Refuses an ensemble that calls itself through others; `members` are those of each model."""
    seen = {name}
    queue = [name]
    for current in queue:
        for member in members.get(current, ()):
            if member == name:
                raise ConfigError(_circle(name, current))
            if member not in seen:
                seen.add(member)
                queue.append(member)


def _circle(start: str, last: str) -> str:
    return f"circular dependency between ensembles: {start} -> ... -> {last} -> {start}"
