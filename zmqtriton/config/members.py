"""Ensembles: do the models that the steps call fit the ensemble and each other?

Called when an ensemble's members are loaded, with their completed configurations; `ensembles`
has checked the graph of steps before. The texts are Triton's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import zmqtriton_protos
from zmqtriton.config.ensembles import Graph
from zmqtriton.config.errors import ConfigError


@dataclass(frozen=True)
class _Inferred:
    """What one model says of a tensor."""

    model: str
    data_type: int
    dims: tuple[int, ...]
    batching: bool

    @property
    def full_dims(self) -> tuple[int, ...]:
        return (-1, *self.dims) if self.batching else self.dims


def complete_ensemble(config: Any, members: Mapping[str, bytes]) -> Any:
    """A copy that is final; the members' configurations are protobuf. Raises ConfigError."""
    complete = zmqtriton_protos.ModelConfig()
    complete.CopyFrom(config)
    message = zmqtriton_protos.ModelConfig
    check_members(complete, {name: message.FromString(proto) for name, proto in members.items()})
    return complete


def check_members(config: Any, members: Mapping[str, Any]) -> None:
    """Refuses members that do not fit; sets the ensemble's transaction policy by theirs."""
    tensors: dict[str, _Inferred] = {}
    batching = config.max_batch_size > 0
    for io in (*config.input, *config.output):
        dims = io.reshape.shape if io.HasField("reshape") else io.dims
        inferred = _Inferred(config.name, io.data_type, tuple(dims), batching)
        tensors.setdefault(io.name, inferred)
    for step in config.ensemble_scheduling.step:
        member = members[step.model_name]
        if 0 < member.max_batch_size < config.max_batch_size:
            raise ConfigError(
                f"ensemble {config.name} allows maximum batch size {config.max_batch_size}, but "
                f"it contains model {step.model_name} which only allows maximum batch size to be "
                f"{member.max_batch_size}"
            )
        _check_inputs(config.name, step, member, tensors)
        _check_outputs(config.name, step, member, tensors)
    config.model_transaction_policy.decoupled = _is_decoupled(config, members)


def _check_inputs(ensemble: str, step: Any, member: Any, tensors: dict[str, _Inferred]) -> None:
    inputs = {io.name: io for io in member.input}
    for name, tensor in sorted(step.input_map.items()):
        if name not in inputs:
            raise ConfigError(
                f"in ensemble {ensemble}, ensemble tensor {tensor} is mapping to non-existing "
                f"input {name} in model {step.model_name}"
            )
    for name, io in inputs.items():
        if name in step.input_map:
            _agree(ensemble, step.input_map[name], io, step.model_name, member, tensors)
        elif not io.optional:
            raise ConfigError(
                f"in ensemble {ensemble}, input {name} in model {step.model_name} is not mapped "
                "to any ensemble tensors"
            )


def _check_outputs(ensemble: str, step: Any, member: Any, tensors: dict[str, _Inferred]) -> None:
    outputs = {io.name: io for io in member.output}
    for name, tensor in sorted(step.output_map.items()):
        if name not in outputs:
            raise ConfigError(
                f"in ensemble {ensemble}, ensemble tensor {tensor} is mapped from non-existing "
                f"output {name} in model {step.model_name}"
            )
        _agree(ensemble, tensor, outputs[name], step.model_name, member, tensors)


def _agree(
    ensemble: str, tensor: str, io: Any, model: str, member: Any, tensors: dict[str, _Inferred]
) -> None:
    """The first model to name a tensor decides; the later ones must agree with it."""
    new = _Inferred(model, io.data_type, tuple(io.dims), member.max_batch_size > 0)
    old = tensors.setdefault(tensor, new)
    where = f"in ensemble {ensemble}, ensemble tensor {tensor}: "
    if old.data_type != new.data_type:
        raise ConfigError(
            f"{where}inconsistent data type: {_type_name(old.data_type)} is inferred from model "
            f"{old.model} while {_type_name(new.data_type)} is inferred from model {new.model}"
        )
    # [-1, 3] of a model that does not batch fits [3] of one that does.
    if not (_fits(old.dims, new.dims) or _fits(old.full_dims, new.full_dims)):
        raise ConfigError(
            f"{where}inconsistent shape: {_shape(old.full_dims)} is inferred from model "
            f"{old.model} while {_shape(new.full_dims)} is inferred from model {new.model}"
        )


def _fits(left: Sequence[int], right: Sequence[int]) -> bool:
    return len(left) == len(right) and all(
        a == b or -1 in (a, b) for a, b in zip(left, right, strict=True)
    )


def _type_name(number: int) -> str:
    return str(zmqtriton_protos.enum("inference.DataType").values_by_number[number].name)


def _shape(dims: Sequence[int]) -> str:
    return "[" + ",".join(str(dim) for dim in dims) + "]"


def _is_decoupled(config: Any, members: Mapping[str, Any]) -> bool:
    """Follows which decoupled step each tensor stems from; two of them cannot meet again."""
    graph = Graph.of(config)
    origin = {tensor.name: 0 for tensor in config.input}
    steps = config.ensemble_scheduling.step
    for index in graph.run_order(origin):
        model = steps[index].model_name
        source = _one_origin(config.name, model, {origin[name] for name in graph.inputs[index]})
        if members[model].model_transaction_policy.decoupled:
            # Number 0 stands for the ensemble's own inputs.
            source = index + 1
        origin.update((name, source) for name in graph.outputs[index])
    _one_origin(config.name, config.name, {origin[tensor.name] for tensor in config.output})
    return any(origin.values())


def _one_origin(ensemble: str, model: str, origins: set[int]) -> int:
    if len(origins) > 1:
        raise ConfigError(
            f"in ensemble {ensemble}, step of model '{model}' receives inputs originated from "
            "different decoupled models"
        )
    return next(iter(origins), 0)
