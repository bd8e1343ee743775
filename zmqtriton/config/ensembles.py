"""Checks the steps of an ensemble and their graph, from the ensemble's own configuration.

Runs at every load; `members` then compares with the models that the steps call. The work grows with
the length of the configuration, never with inputs times outputs. The texts are Triton's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zmqtriton.config.backends import ENSEMBLE
from zmqtriton.config.errors import ConfigError, FieldPath, Problem
from zmqtriton_floor.errors import closest_match


def member_names(config: Any) -> list[str]:
    """Return the models an ensemble calls, each once, in the order of its steps; [] for others."""
    return list(dict.fromkeys(step.model_name for step in config.ensemble_scheduling.step))


def member_steps(config: Any) -> list[tuple[str, int]]:
    """Return model and version of each step; -1 is the newest."""
    return [(step.model_name, step.model_version or -1) for step in config.ensemble_scheduling.step]


def step_problems(config: Any) -> Iterator[Problem]:
    """Return the problems of the sections and of each step.

    If all steps have their maps, those of the graph, too.
    """
    yield from _section_problems(config)
    steps = config.ensemble_scheduling.step
    for index, step in enumerate(steps):
        yield from _one_step_problems(config, index, step)
    if all(step.input_map and step.output_map for step in steps):
        yield from _graph_problems(config)


def _graph_problems(config: Any) -> Iterator[Problem]:
    graph = EnsembleGraph.from_config(config)
    yield from graph.duplicate_writer_problems
    tensors = graph.tensors()
    for index, tensor in enumerate(config.input):
        if tensor.name not in tensors:
            yield Problem(
                f"ensemble input '{tensor.name}' for ensemble {config.name}' is not used",
                ("input", index),
                suggestion=closest_match(tensor.name, tensors),
            )
    ready = graph.reachable(tensor.name for tensor in config.input)
    for index, tensor in enumerate(config.output):
        yield from _output_problems(config.name, tensor.name, graph, ready, ("output", index))
    outputs = {tensor.name for tensor in config.output}
    for name in sorted(tensors - outputs):
        if name not in ready or name not in graph.readers:
            step = graph.writer[name] if name in graph.writer else graph.readers[name][0]
            yield Problem(
                f"ensemble tensor '{name}' is unused in ensemble '{config.name}'",
                ("ensemble_scheduling", "step", step),
                suggestion=closest_match(
                    name, (tensors | {i.name for i in config.input} | outputs) - {name}
                ),
            )


def _section_problems(config: Any) -> Iterator[Problem]:
    name = config.name
    if config.platform != ENSEMBLE:
        yield Problem(
            f"ensemble scheduling cannot be set for model '{name}' whose platform is not "
            f"{ENSEMBLE}",
            ("platform",) if config.platform else ("ensemble_scheduling",),
            suggestion=closest_match(config.platform, [ENSEMBLE]),
        )
    if config.instance_group:
        yield Problem(
            f"instance group should not be specified for ensemble '{name}'", ("instance_group", 0)
        )
    if config.HasField("optimization"):
        yield Problem(
            f"optimization should not be specified for ensemble '{name}'", ("optimization",)
        )
    if config.model_warmup:
        yield Problem(
            f"model_warmup can not be specified for ensemble '{name}'", ("model_warmup", 0)
        )
    if not config.ensemble_scheduling.step:
        yield Problem(f"must specify 'step' for ensemble '{name}'", ("ensemble_scheduling",))


def _one_step_problems(config: Any, index: int, step: Any) -> Iterator[Problem]:
    field = ("ensemble_scheduling", "step", index)
    for section in ("model_name", "input_map", "output_map"):
        if not getattr(step, section):
            yield Problem(
                f"must specify '{section}' in step {index} of ensemble '{config.name}'", field
            )
    if config.name and step.model_name == config.name:
        yield Problem(_cycle_text(config.name, config.name), (*field, "model_name"))


def _output_problems(
    ensemble: str, name: str, graph: EnsembleGraph, ready: set[str], field: FieldPath
) -> Iterator[Problem]:
    if name not in graph.tensors():
        text = f"ensemble output '{name}' for ensemble {ensemble}' is not used"
        yield Problem(text, field, suggestion=closest_match(name, graph.tensors()))
    elif name not in ready:
        text = f"output '{name}' for ensemble '{ensemble}' is not written"
        source = graph.unwritten_source(name, ready)
        if source != name:
            text += f": at least one of its depending tensors, '{source}', is not connected"
        yield Problem(text, field, suggestion=closest_match(source, ready))


@dataclass
class EnsembleGraph:
    """Which step writes a tensor, and which steps read it."""

    inputs: list[set[str]] = field(default_factory=list)
    outputs: list[list[str]] = field(default_factory=list)
    writer: dict[str, int] = field(default_factory=dict)
    readers: dict[str, list[int]] = field(default_factory=dict)
    #: Tensors that two steps write.
    duplicate_writer_problems: list[Problem] = field(default_factory=list)

    @classmethod
    def from_config(cls, config: Any) -> EnsembleGraph:
        graph = cls()
        for index, step in enumerate(config.ensemble_scheduling.step):
            graph.add_step(config.name, index, step)
        return graph

    def add_step(self, ensemble: str, index: int, step: Any) -> None:
        self.inputs.append(set(step.input_map.values()))
        self.outputs.append(sorted(step.output_map.values()))
        for name in self.outputs[index]:
            if name in self.writer:
                self.duplicate_writer_problems.append(
                    Problem(
                        f"ensemble tensor '{name}' can appear in an output map only once for "
                        f"ensemble '{ensemble}' step {index}",
                        ("ensemble_scheduling", "step", index, "output_map"),
                    )
                )
            self.writer[name] = index
        for name in self.inputs[index]:
            self.readers.setdefault(name, []).append(index)

    def tensors(self) -> set[str]:
        return self.writer.keys() | self.readers.keys()

    def reachable(self, tensors: Iterable[str]) -> set[str]:
        """Return all tensors that have a value once the given ones have."""
        ready = set(tensors)
        for step in self.run_order(ready):
            ready.update(self.outputs[step])
        return ready

    def run_order(self, tensors: Iterable[str]) -> list[int]:
        """Return the steps that can run once the given tensors have a value, in order."""
        missing = [len(inputs) for inputs in self.inputs]
        queue = sorted(tensors)
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

    def unwritten_source(self, name: str, ready: set[str]) -> str:
        """Follow an unwritten tensor back to its source, for the error.

        A circle ends the search, too.
        """
        seen = {name}
        while name in self.writer:
            before = sorted(self.inputs[self.writer[name]] - ready - seen)
            if not before:
                break
            name = before[0]
            seen.add(name)
        return name


def check_cycle(name: str, members: Mapping[str, Sequence[str]]) -> None:
    """Refuse an ensemble that calls itself through others; `members` are those of each model."""
    seen = {name}
    queue = [name]
    for current in queue:
        for member in members.get(current, ()):
            if member == name:
                raise ConfigError(_cycle_text(name, current))
            if member not in seen:
                seen.add(member)
                queue.append(member)


def _cycle_text(start: str, last: str) -> str:
    return f"circular dependency between ensembles: {start} -> ... -> {last} -> {start}"
