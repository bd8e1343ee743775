"""Holds the outputs of a response against the model's configuration.

A server passes on what a model makes, and leaves out what the configuration does not know: a client
would find the mistake. A test finds it here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from zmqtriton_floor.datatypes import BY_CONFIG_NAME, BY_NUMBER
from zmqtriton_floor.wire import Tensor


class OutputError(AssertionError):
    """Raised when an output is not what the model's configuration says."""


def check_names(names: Iterable[str], config: Mapping[str, Any]) -> None:
    """Raise OutputError for an output that a server would leave out."""
    declared = [entry["name"] for entry in config.get("output", ())]
    batching = config.get("sequence_batching") or {}
    states = [entry["output_name"] for entry in batching.get("state", ())]
    for name in names:
        if name not in declared + states:
            raise OutputError(
                f"model '{config['name']}' has made an output '{name}', which its configuration "
                f"does not have: {', '.join(declared)}"
            )


def check_tensors(
    tensors: Iterable[Tensor], config: Mapping[str, Any], batch_size: int | None
) -> None:
    """Raise OutputError for a wrong type or shape; the batch size is None if it may be any."""
    entries = {entry["name"]: entry for entry in config.get("output", ())}
    is_batching = bool(config.get("max_batch_size"))
    for tensor in tensors:
        entry = entries[tensor.name]
        what = f"output '{tensor.name}' of model '{config['name']}'"
        declared = BY_CONFIG_NAME[entry["data_type"]]
        if tensor.datatype != declared.number:
            raise OutputError(
                f"{what} is {BY_NUMBER[tensor.datatype].name}, and its configuration says "
                f"{declared.name} ({declared.config_name})"
            )
        dims = [int(dim) for dim in entry["dims"]]
        if is_batching:
            dims.insert(0, -1 if batch_size is None else batch_size)
        if not _fits(tensor.shape, dims):
            note = ", of which the first is the batch" if is_batching else ""
            raise OutputError(
                f"{what} has the shape {list(tensor.shape)}, and its configuration says "
                f"{dims}{note}"
            )


def _fits(shape: list[int], dims: list[int]) -> bool:
    return len(shape) == len(dims) and all(
        dim in (-1, size) for size, dim in zip(shape, dims, strict=True)
    )
