"""Checks that two versions of a model take the same requests, by their final configurations.

A request is divided before it is checked, so what fits the one must fit the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def find_difference(stable: Mapping[str, Any], canary: Mapping[str, Any]) -> str:
    """Return why the canary cannot take the stable version's requests, or ""."""
    for what, of in (
        ("max_batch_size", lambda config: config.get("max_batch_size", 0)),
        ("'decoupled'", is_decoupled),
        ("sequence batching", has_sequences),
        ("inputs", lambda config: _tensors(config, "input")),
    ):
        if of(stable) != of(canary):
            return f"{what} of the two versions differ{'' if what == 'inputs' else 's'}"
    outputs = _tensors(canary, "output")
    for name, tensor in _tensors(stable, "output").items():
        if outputs.get(name, ("",))[0] != tensor[0]:
            return f"it does not have the output '{name}' as the stable version has it"
    return ""


def find_obstacle_to_copies(config: Mapping[str, Any]) -> str:
    """Return why requests of this model cannot be copied, or ""."""
    if is_decoupled(config):
        return "requests of a decoupled model cannot be copied: they have many answers or none"
    if has_sequences(config):
        return "requests of sequences cannot be copied: each depends on those before it"
    return ""


def is_decoupled(config: Mapping[str, Any]) -> bool:
    return bool((config.get("model_transaction_policy") or {}).get("decoupled"))


def has_sequences(config: Mapping[str, Any]) -> bool:
    return "sequence_batching" in config


def _tensors(config: Mapping[str, Any], which: str) -> dict[str, tuple[Any, ...]]:
    """Return type, dimensions and necessity of each, by name."""
    return {
        tensor["name"]: (tensor["data_type"], tuple(tensor["dims"]), tensor.get("optional", False))
        for tensor in config.get(which, ())
    }
