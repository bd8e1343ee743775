"""The ModelConfig that a model's auto_complete_config fills in, with Triton's rules and texts."""

from __future__ import annotations

import json
from typing import Any

_PROPERTIES = {
    "input": ("name", "data_type", "dims", "optional"),
    "output": ("name", "data_type", "dims"),
}


class ModelConfig:
    """A configuration as JSON; fields from config.pbtxt can be completed, but not changed."""

    def __init__(self, model_config: str) -> None:
        self._model_config: dict[str, Any] = json.loads(model_config)

    def as_dict(self) -> dict[str, Any]:
        """Return the configuration itself, not a copy."""
        return self._model_config

    def as_json(self) -> str:
        """Return the configuration as JSON."""
        return json.dumps(self._model_config)

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Set max_batch_size, to at least the value in config.pbtxt."""
        configured = self._model_config.get("max_batch_size", 0)
        if configured > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {configured}, but in auto-complete-config "
                f"function for model '{self._name}' specified max_batch_size {max_batch_size}"
            )
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        """Let requests be batched."""
        for scheduler in ("sequence_batching", "ensemble_scheduling"):
            if scheduler in self._model_config:
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{scheduler}', but "
                    f"auto-complete-config function for model '{self._name}' tries to set "
                    "scheduling_choice as 'dynamic_batching'"
                )
        self._model_config.setdefault("dynamic_batching", {})

    def add_input(self, input: dict[str, Any]) -> None:
        """Add an input, a dict of `name`, `data_type`, `dims` and `optional`."""
        self._add("input", input)

    def add_output(self, output: dict[str, Any]) -> None:
        """Add an output, a dict of `name`, `data_type` and `dims`."""
        self._add("output", output)

    def set_model_transaction_policy(self, transaction_policy_dict: dict[str, Any]) -> None:
        """Set `{"decoupled": True}`."""
        if any(name != "decoupled" for name in transaction_policy_dict):
            raise ValueError(
                f"model transaction property in auto-complete-config function for model "
                f"'{self._name}' contains property other than 'decoupled'."
            )
        policy = self._model_config.setdefault("model_transaction_policy", {})
        decoupled = transaction_policy_dict.get("decoupled", policy.get("decoupled"))
        if policy.get("decoupled", decoupled) != decoupled:
            raise ValueError(
                f"trying to change decoupled property in auto-complete-config for model "
                f"'{self._name}', which is already set to '{policy['decoupled']}'."
            )
        policy.update(transaction_policy_dict)

    @property
    def _name(self) -> str:
        return str(self._model_config.get("name", ""))

    def _check(self, kind: str, tensor: dict[str, Any]) -> None:
        where = f"in auto-complete-config function for model '{self._name}'"
        if "name" not in tensor:
            raise ValueError(f"{kind} {where} is missing 'name' property.")
        what = f"{kind} '{tensor['name']}' {where}"
        allowed = _PROPERTIES[kind]
        if not set(allowed).issuperset(tensor):
            listed = ", ".join(f"'{name}'" for name in allowed[:-1]) + f" and '{allowed[-1]}'"
            raise ValueError(f"{what} contains property other than {listed}.")
        for name in ("data_type", "dims"):
            if name not in tensor:
                raise ValueError(f"{what} is missing '{name}' property.")

    def _add(self, kind: str, tensor: dict[str, Any]) -> None:
        """Complete the tensor with this name, or else add this one."""
        self._check(kind, tensor)
        tensors: list[dict[str, Any]] = self._model_config.setdefault(kind, [])
        for entry in tensors:
            if entry["name"] == tensor["name"]:
                self._check_same(kind, entry, tensor)
                entry.update(tensor)
                return
        tensors.append(tensor)

    def _check_same(self, kind: str, entry: dict[str, Any], tensor: dict[str, Any]) -> None:
        name = tensor["name"]
        if entry.get("data_type", "TYPE_INVALID") not in ("TYPE_INVALID", tensor["data_type"]):
            raise ValueError(
                f"unable to load model '{self._name}', configuration expects datatype "
                f"{entry['data_type']} for {kind} '{name}', model provides {tensor['data_type']}"
            )
        if entry.get("dims") and entry["dims"] != tensor["dims"]:
            raise ValueError(
                f"model '{self._name}', tensor '{name}': the model expects dims {tensor['dims']} "
                f"but the model configuration specifies dims {entry['dims']}"
            )
        expected, configured = tensor.get("optional"), entry.get("optional")
        if None not in (expected, configured) and expected != configured:
            raise ValueError(
                f"model '{self._name}', tensor '{name}': the model expects optional {expected} "
                f"but the model configuration specifies optional {configured}"
            )
