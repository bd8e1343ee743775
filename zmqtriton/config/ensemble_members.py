"""Checks that the members of an ensemble fit the ensemble and each other.

Runs when all members are loaded, with their completed configurations; `ensembles` has checked the
graph of steps before. The texts are Triton's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmqtriton_protos
from zmqtriton.config.ensembles import EnsembleGraph
from zmqtriton.config.errors import ConfigError, FieldPath, Problem, raise_first
from zmqtriton.config.positions import locate_error
from zmqtriton_floor.errors import closest_match


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
    """Refuse members that do not fit, and set the ensemble's transaction policy by theirs."""
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
        if 0 < member.max_batch_size < config.max_batch_size:
            text = (
                f"ensemble {config.name} allows maximum batch size {config.max_batch_size}, but "
                f"it contains model {step.model_name} which only allows maximum batch size to be "
                f"{member.max_batch_size}"
            )
            yield Problem(text, ("max_batch_size",))
        use = _StepCall(config.name, step, member, ("ensemble_scheduling", "step", index))
        yield from _input_problems(use, tensors)
        yield from _output_problems(use, tensors)


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
            text = (
                f"in ensemble {use.ensemble}, ensemble tensor {tensor} is mapping to non-existing "
                f"input {name} in model {model}"
            )
            field = (*use.field, "input_map", name)
            meant.add(closest_match(name, inputs))
            yield Problem(text, field, suggestion=closest_match(name, inputs))
    for name, io in inputs.items():
        if name in use.step.input_map:
            field = (*use.field, "input_map", name)
            tensor = use.step.input_map[name]
            yield from _consistency_problems(use, tensor, io, field, tensors)
        elif not io.optional and name not in meant:
            text = (
                f"in ensemble {use.ensemble}, input {name} in model {model} is not mapped to any "
                "ensemble tensors"
            )
            yield Problem(text, use.field)


def _output_problems(use: _StepCall, tensors: dict[str, _InferredTensor]) -> Iterator[Problem]:
    outputs = {io.name: io for io in use.member.output}
    for name, tensor in sorted(use.step.output_map.items()):
        field = (*use.field, "output_map", name)
        if name not in outputs:
            text = (
                f"in ensemble {use.ensemble}, ensemble tensor {tensor} is mapped from "
                f"non-existing output {name} in model {use.step.model_name}"
            )
            yield Problem(text, field, suggestion=closest_match(name, outputs))
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
        text = (
            f"{where}inconsistent data type: {_type_name(old.data_type)} is inferred from model "
            f"{old.model} while {_type_name(new.data_type)} is inferred from model {new.model}"
        )
        yield Problem(text, field)
    # [-1, 3] of a model that does not batch fits [3] of one that does
    if not (_dims_match(old.dims, new.dims) or _dims_match(old.full_dims, new.full_dims)):
        text = (
            f"{where}inconsistent shape: {_shape_text(old.full_dims)} is inferred from model "
            f"{old.model} while {_shape_text(new.full_dims)} is inferred from model {new.model}"
        )
        yield Problem(text, field)


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
    graph = EnsembleGraph.from_config(config)
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
