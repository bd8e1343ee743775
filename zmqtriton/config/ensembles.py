"""Checks an ensemble: its steps and their graph, and later whether its members fit.

The graph is checked at every load, from the ensemble's own configuration. The members are compared
with the ensemble and each other when all are loaded, with their completed configurations. The work
grows with the length of the configuration, never with inputs times outputs. The texts are Triton's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmqtriton_protos
from zmqtriton.config.backends import ENSEMBLE
from zmqtriton.config.errors import ConfigError, FieldPath, Problem, raise_first, rule_problems
from zmqtriton.config.parameters import SPLIT_BATCHES, parameter_text
from zmqtriton.config.positions import locate_error
from zmqtriton_floor.errors import closest_match


def member_names(config: Any) -> list[str]:
    """Return the models that an ensemble calls, each once, in the order of steps; else []."""
    return list(dict.fromkeys(step.model_name for step in config.ensemble_scheduling.step))


def member_steps(config: Any) -> list[tuple[str, int]]:
    """Return model and version of each step; -1 is the newest."""
    return [(step.model_name, step.model_version or -1) for step in config.ensemble_scheduling.step]


def step_problems(config: Any) -> Iterator[Problem]:
    """Return the problems of the sections and of each step.

    Adds the problems of the graph if all steps have their maps.
    """
    yield from _section_problems(config)
    steps = config.ensemble_scheduling.step
    for index, step in enumerate(steps):
        name, field = config.name, ("ensemble_scheduling", "step", index)
        where = f"in step {index} of ensemble '{name}'"
        yield from rule_problems(
            *(
                (not getattr(step, section), f"must specify '{section}' {where}", field)
                for section in ("model_name", "input_map", "output_map")
            ),
            (name and step.model_name == name, _cycle_text(name, name), (*field, "model_name")),
        )
    if all(step.input_map and step.output_map for step in steps):
        yield from _graph_problems(config)


def _graph_problems(config: Any) -> Iterator[Problem]:
    graph = EnsembleGraph(config)
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
    yield from rule_problems(
        (
            config.instance_group,
            f"instance group should not be specified for ensemble '{name}'",
            ("instance_group", 0),
        ),
        (
            config.HasField("optimization"),
            f"optimization should not be specified for ensemble '{name}'",
            ("optimization",),
        ),
        (
            config.model_warmup,
            f"model_warmup can not be specified for ensemble '{name}'",
            ("model_warmup", 0),
        ),
        (
            not config.ensemble_scheduling.step,
            f"must specify 'step' for ensemble '{name}'",
            ("ensemble_scheduling",),
        ),
    )


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


class EnsembleGraph:
    """The graph of an ensemble: the step that writes each tensor, and the steps that read it."""

    def __init__(self, config: Any) -> None:
        steps = config.ensemble_scheduling.step
        self.inputs = [set(step.input_map.values()) for step in steps]
        self.outputs = [sorted(step.output_map.values()) for step in steps]
        self.writer: dict[str, int] = {}
        self.readers: dict[str, list[int]] = {}
        #: Tensors that two steps write.
        self.duplicate_writer_problems: list[Problem] = []
        for index in range(len(steps)):
            self._add_step(config.name, index)

    def _add_step(self, ensemble: str, index: int) -> None:
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
        """Return all tensors that get a value once the given tensors have a value."""
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
    """Refuse an ensemble that calls itself through others; `members` has each ensemble's steps."""
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


@dataclass(frozen=True)
class _InferredTensor:
    """One model's view of a tensor."""

    model: str
    data_type: int
    dims: tuple[int, ...]
    is_batching: bool

    @property
    def full_dims(self) -> tuple[int, ...]:
        return (-1, *self.dims) if self.is_batching else self.dims


def complete_ensemble(
    config: Any, members: Mapping[str, bytes], *, path: Path | None = None
) -> Any:
    """Return a final copy; the members' configurations are protobuf.

    Raises ConfigError, which names the line of the ensemble's own file.
    """
    complete = zmqtriton_protos.ModelConfig()
    complete.CopyFrom(config)
    message = zmqtriton_protos.ModelConfig
    configs = {name: message.FromString(proto) for name, proto in members.items()}
    try:
        check_members(complete, configs)
    except ConfigError as error:
        raise locate_error(error, path) from None
    return complete


def no_loaded_version_text(ensemble: str, model: str, why: str) -> str:
    """Return the error text for a step whose model is not loaded."""
    return (
        f"ensemble '{ensemble}' depends on '{model}' which has no loaded version. "
        f"Model '{model}' loading failed with error: {why}"
    )


def version_not_loaded_text(ensemble: str, model: str, number: int) -> str:
    """Return the error text for a step that names a version that is not loaded."""
    return (
        f"ensemble '{ensemble}' depends on '{model}' whose required version {number} is not loaded."
    )


def check_members(config: Any, members: Mapping[str, Any]) -> None:
    """Refuse members that do not fit, and derive the ensemble's transaction policy from them."""
    raise_first(member_problems(config, members))
    config.model_transaction_policy.decoupled = _is_decoupled(config, members)


def member_problems(config: Any, members: Mapping[str, Any]) -> Iterator[Problem]:
    """Return each difference between the steps and those of their models that are known."""
    tensors: dict[str, _InferredTensor] = {}
    batching = config.max_batch_size > 0
    for io in (*config.input, *config.output):
        dims = io.reshape.shape if io.HasField("reshape") else io.dims
        inferred = _InferredTensor(config.name, io.data_type, tuple(dims), batching)
        tensors.setdefault(io.name, inferred)
    for index, step in enumerate(config.ensemble_scheduling.step):
        member = members.get(step.model_name)
        if member is None:
            continue
        is_divided = parameter_text(member, SPLIT_BATCHES) == "true"
        if 0 < member.max_batch_size < config.max_batch_size and not is_divided:
            yield Problem(
                f"ensemble {config.name} allows maximum batch size {config.max_batch_size}, but "
                f"it contains model {step.model_name} which only allows maximum batch size to be "
                f"{member.max_batch_size}",
                ("max_batch_size",),
            )
        use = _StepCall(config.name, step, member, ("ensemble_scheduling", "step", index))
        yield from _input_problems(use, tensors)
        yield from _member_output_problems(use, tensors)


@dataclass(frozen=True)
class _StepCall:
    """A step, the model that it calls, and its place in the ensemble's configuration."""

    ensemble: str
    step: Any
    member: Any
    field: FieldPath


def _input_problems(use: _StepCall, tensors: dict[str, _InferredTensor]) -> Iterator[Problem]:
    inputs = {io.name: io for io in use.member.input}
    model = use.step.model_name
    # one misspelt name is one problem, not also an input that nothing is mapped to
    meant = set()
    for name, tensor in sorted(use.step.input_map.items()):
        if name not in inputs:
            suggestion = closest_match(name, inputs)
            meant.add(suggestion)
            yield Problem(
                f"in ensemble {use.ensemble}, ensemble tensor {tensor} is mapping to non-existing "
                f"input {name} in model {model}",
                (*use.field, "input_map", name),
                suggestion=suggestion,
            )
    for name, io in inputs.items():
        if name in use.step.input_map:
            field = (*use.field, "input_map", name)
            tensor = use.step.input_map[name]
            yield from _consistency_problems(use, tensor, io, field, tensors)
        elif not io.optional and name not in meant:
            yield Problem(
                f"in ensemble {use.ensemble}, input {name} in model {model} is not mapped to any "
                "ensemble tensors",
                use.field,
            )


def _member_output_problems(
    use: _StepCall, tensors: dict[str, _InferredTensor]
) -> Iterator[Problem]:
    outputs = {io.name: io for io in use.member.output}
    for name, tensor in sorted(use.step.output_map.items()):
        field = (*use.field, "output_map", name)
        if name not in outputs:
            yield Problem(
                f"in ensemble {use.ensemble}, ensemble tensor {tensor} is mapped from "
                f"non-existing output {name} in model {use.step.model_name}",
                field,
                suggestion=closest_match(name, outputs),
            )
        else:
            yield from _consistency_problems(use, tensor, outputs[name], field, tensors)


def _consistency_problems(
    use: _StepCall, tensor: str, io: Any, field: FieldPath, tensors: dict[str, _InferredTensor]
) -> Iterator[Problem]:
    """Compare tensors: the first model to name one decides, and later ones must agree with it."""
    batching = use.member.max_batch_size > 0
    new = _InferredTensor(use.step.model_name, io.data_type, tuple(io.dims), batching)
    old = tensors.setdefault(tensor, new)
    where = f"in ensemble {use.ensemble}, ensemble tensor {tensor}: "
    if old.data_type != new.data_type:
        yield Problem(
            f"{where}inconsistent data type: {_type_name(old.data_type)} is inferred from model "
            f"{old.model} while {_type_name(new.data_type)} is inferred from model {new.model}",
            field,
        )
    # [-1, 3] of a model that does not batch fits [3] of one that does
    if not (_dims_match(old.dims, new.dims) or _dims_match(old.full_dims, new.full_dims)):
        yield Problem(
            f"{where}inconsistent shape: {_shape_text(old.full_dims)} is inferred from model "
            f"{old.model} while {_shape_text(new.full_dims)} is inferred from model {new.model}",
            field,
        )


def _dims_match(left: Sequence[int], right: Sequence[int]) -> bool:
    return len(left) == len(right) and all(
        a == b or -1 in (a, b) for a, b in zip(left, right, strict=True)
    )


def _type_name(number: int) -> str:
    return str(zmqtriton_protos.enum("inference.DataType").values_by_number[number].name)


def _shape_text(dims: Sequence[int]) -> str:
    return "[" + ",".join(str(dim) for dim in dims) + "]"


def _is_decoupled(config: Any, members: Mapping[str, Any]) -> bool:
    """True if the ensemble is decoupled.

    Follows which decoupled step each tensor comes from; tensors of two such steps cannot be
    combined.
    """
    graph = EnsembleGraph(config)
    origin = {tensor.name: 0 for tensor in config.input}
    steps = config.ensemble_scheduling.step
    for index in graph.run_order(origin):
        model = steps[index].model_name
        source = _common_origin(config.name, model, {origin[name] for name in graph.inputs[index]})
        if members[model].model_transaction_policy.decoupled:
            # number 0 stands for the ensemble's own inputs
            source = index + 1
        origin.update((name, source) for name in graph.outputs[index])
    _common_origin(config.name, config.name, {origin[tensor.name] for tensor in config.output})
    return any(origin.values())


def _common_origin(ensemble: str, model: str, origins: set[int]) -> int:
    if len(origins) > 1:
        raise ConfigError(
            f"in ensemble {ensemble}, step of model '{model}' receives inputs originated from "
            "different decoupled models"
        )
    return next(iter(origins), 0)
