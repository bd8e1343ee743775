"""Adapters of a model, such as LoRA's: names of their own in the list of models.

A model names its adapters in its configuration, and gets the name of one with each request.
"""

from __future__ import annotations

from typing import Any

from zmqtriton_addons.web_apis.openai.tensor_names import TensorNames, names_of
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_frontends.inference import ModelVersion

_ADAPTERS, _SEPARATOR = "openai_lora_adapters", "openai_lora_separator"
#: Between the names of model and adapter.
DEFAULT_SEPARATOR = "_lora_"


def adapters_of(names: TensorNames) -> list[str]:
    """Return the adapters that a model names."""
    return [name for name in names.value(_ADAPTERS).replace(",", " ").split() if name]


def ids_of(model: ModelVersion) -> list[str]:
    """Return the names by which clients ask for a model and for its adapters."""
    names = names_of(model)
    separator = _separator(names)
    return [model.name, *(f"{model.name}{separator}{one}" for one in adapters_of(names))]


def split(catalogue: Any, name: str) -> tuple[str, str]:
    """Return the model and the adapter that a client asks for, "" for no adapter.

    A model of that name comes first. The adapter of a model that is not loaded need not exist.
    """
    try:
        return catalogue.find(name).name, ""
    except ZmqTritonError:
        pass
    for model in catalogue.newest():
        if name.startswith(model.name):
            names = names_of(model)
            adapter = name.removeprefix(f"{model.name}{_separator(names)}")
            if adapter != name and adapter in adapters_of(names):
                return model.name, adapter
    base, _, adapter = name.rpartition(DEFAULT_SEPARATOR)
    return (base, adapter) if base in catalogue.versions() else (name, "")


def _separator(names: TensorNames) -> str:
    return names.value(_SEPARATOR) or DEFAULT_SEPARATOR
