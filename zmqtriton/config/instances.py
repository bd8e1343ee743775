"""Instance groups: their defaults, their checks, and the instances that follow from them.

Runs after auto-completion, because a model may be completed without groups. The caller gives the
ids of the GPUs that may be used; none means a CPU-only server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import zmqtriton_protos
from zmqtriton.config.errors import FieldPath, Problem, raise_first
from zmqtriton.config.resources import needs_of_group
from zmqtriton_floor.errors import InternalError, InvalidArgument
from zmqtriton_floor.reasons import Kind

#: Maximum number of instances. Each is a process; a larger number is a slip of the pen that would
#: bring the machine down.
MAX_INSTANCES = 1024

#: Ways of having instances of a process that has loaded their model.
FORKS, THREADS = INSTANCE_KINDS = ("forks", "threads")

_KIND = zmqtriton_protos.message("inference.ModelInstanceGroup")
#: Backends that run two instances on CPU by default, as in Triton.
_BACKENDS_WITH_TWO_CPU_INSTANCES = frozenset({"tensorflow", "onnxruntime"})


@dataclass(frozen=True)
class InstanceSpec:
    """One stub to start. The name is Triton's, and repeats on several GPUs."""

    name: str
    kind: str
    device_id: int
    passive: bool
    host_policy: str = ""
    #: Needs of the rate limiter's resources as JSON; "" if the instance is never limited.
    resource_needs: str = ""


def apply_group_defaults(config: Any, gpus: Sequence[int] = ()) -> None:
    """Give each group a name, a kind, a count and its GPUs; add a group without any.

    A group that is added here is named like the model, listed ones get `<model>_<index>`, so that
    the instance is `m_0` in the one case and `m_0_0` in the other: clients see these names.
    """
    if config.HasField("ensemble_scheduling"):
        return
    if not config.instance_group:
        config.instance_group.add(name=config.name)
    for index, group in enumerate(config.instance_group):
        group.name = group.name or f"{config.name}_{index}"
        if group.kind == _KIND.KIND_AUTO:
            usable = bool(gpus) and set(group.gpus) <= set(gpus)
            group.kind = _KIND.KIND_GPU if usable else _KIND.KIND_CPU
        if group.count < 1:
            two = (
                group.kind == _KIND.KIND_CPU and config.backend in _BACKENDS_WITH_TWO_CPU_INSTANCES
            )
            group.count = 2 if two else 1
        if group.kind == _KIND.KIND_GPU and not group.gpus:
            group.gpus.extend(sorted(gpus))


def with_group_defaults(config: Any, gpus: Sequence[int] = ()) -> Any:
    """Return a copy of the configuration whose groups have their defaults."""
    complete = deepcopy(config)
    apply_group_defaults(complete, gpus)
    return complete


def set_instance_count(config: Any, count: int, group: str = "") -> None:
    """Set the count of the instance group with this name; a single group needs no name.

    Raises InvalidArgument.
    """
    if config.HasField("ensemble_scheduling"):
        raise InvalidArgument(
            f"model '{config.name}' is an ensemble, which has no instances; scale the models of "
            "its steps"
        )
    if not 1 <= count <= MAX_INSTANCES:
        raise InvalidArgument(
            f"the number of instances is {count}, it must be from 1 to {MAX_INSTANCES}"
        )
    if not config.instance_group:
        config.instance_group.add(name=config.name)
    groups = {g.name or f"{config.name}_{i}": g for i, g in enumerate(config.instance_group)}
    if group not in groups and (group or len(groups) > 1):
        unnamed = "several instance groups, name one of"
        has = f"no instance group '{group}', it has" if group else unnamed
        raise InvalidArgument(f"model '{config.name}' has {has} {', '.join(groups)}")
    groups[group or next(iter(groups))].count = count
    raise_first(instance_count_problems(config))


def group_problems(
    config: Any, gpus: Sequence[int] = (), min_compute_capability: float = 6.0
) -> Iterator[Problem]:
    """Return the problems of groups that have their defaults; the texts are Triton's."""
    if config.HasField("ensemble_scheduling"):
        return
    if not config.instance_group:
        yield Problem(f"must specify one or more 'instance group's for {config.name}")
    for index, group in enumerate(config.instance_group):
        where = f"instance group {group.name} of model {config.name}"
        field = ("instance_group", index)
        if group.kind == _KIND.KIND_GPU:
            yield from _gpu_problems(group, where, gpus, min_compute_capability, field)
        elif group.kind in (_KIND.KIND_CPU, _KIND.KIND_MODEL):
            if group.gpus:
                kind = "KIND_CPU" if group.kind == _KIND.KIND_CPU else "KIND_MODEL"
                text = f"{where} has kind {kind} but specifies one or more GPUs"
                yield Problem(text, (*field, "gpus"))
        else:
            text = f"{where} has unexpected kind KIND_AUTO"
            yield Problem(text, field, error_number=InternalError.number)
        if group.profile and config.platform != "tensorrt_plan":
            yield Problem(
                f"{where} and platform {config.platform}specifies profile field which is only "
                "supported for TensorRT models",
                (*field, "profile"),
            )
    yield from instance_count_problems(config)


def _gpu_problems(
    group: Any, where: str, gpus: Sequence[int], min_compute_capability: float, field: FieldPath
) -> Iterator[Problem]:
    if not group.gpus:
        problem = "specifies no GPUs" if gpus else "no GPUs are available"
        text = f"{where} has kind KIND_GPU but {problem}"
        yield Problem(text, (*field, "kind"), kind=Kind.GPU_MISSING, is_host_specific=True)
    for number, gpu in enumerate(group.gpus):
        if gpu not in gpus:
            yield Problem(
                f"{where} specifies invalid or unsupported gpu id {gpu}. GPUs with at least the "
                f"minimum required CUDA compute compatibility of {min_compute_capability:f} are: "
                + ", ".join(str(device) for device in sorted(gpus)),
                (*field, "gpus", number),
                kind=Kind.GPU_MISSING,
                is_host_specific=True,
            )


def instance_count_problems(config: Any) -> Iterator[Problem]:
    """Return problems of the number of instances; call this before instance_specs()."""
    total = sum(group.count * max(1, len(group.gpus)) for group in config.instance_group)
    if total > MAX_INSTANCES:
        text = f"model {config.name} asks for {total} instances, the limit is {MAX_INSTANCES}"
        yield Problem(
            text,
            ("instance_group", 0, "count"),
            kind=Kind.TOO_MANY_INSTANCES,
            values={"instances": total, "limit": MAX_INSTANCES},
        )


def instance_specs(config: Any) -> list[InstanceSpec]:
    """Return the instances of a completed configuration, the first to start first."""
    is_limited = any(group.HasField("rate_limiter") for group in config.instance_group)
    return [
        InstanceSpec(
            name=f"{group.name}_{index}",
            kind=kind,
            device_id=device_id,
            passive=group.passive,
            host_policy=group.host_policy,
            resource_needs=needs_of_group(group, device_id).to_json() if is_limited else "",
        )
        for group in config.instance_group
        for index in range(group.count)
        for kind, device_id in _group_devices(group)
    ]


def _group_devices(group: Any) -> Iterable[tuple[str, int]]:
    if group.kind == _KIND.KIND_GPU:
        return [("GPU", gpu) for gpu in group.gpus]
    return [("MODEL" if group.kind == _KIND.KIND_MODEL else "CPU", 0)]
