from __future__ import annotations

import pytest

from tests.frontends.http_api.text_models import text_model
from zmqtriton_extras.openai.tensor_names import ids_of, split
from zmqtriton_frontends.inference.catalogue import Catalogue


def catalogue() -> Catalogue:
    models = Catalogue()
    adapted = {"openai_lora_adapters": "doll, sheep"}
    models.update(text_model("gemma", parameters=adapted))
    models.update(text_model("llama", parameters={**adapted, "openai_lora_separator": ":"}))
    models.update(text_model("gemma_lora_sheep"))
    models.update(text_model("plain"))
    return models


def test_each_adapter_has_a_name_of_its_own() -> None:
    assert [ids_of(model) for model in catalogue().newest()] == [
        ["gemma", "gemma_lora_doll", "gemma_lora_sheep"],
        ["gemma_lora_sheep"],
        ["llama", "llama:doll", "llama:sheep"],
        ["plain"],
    ]


@pytest.mark.parametrize(
    ("name", "model", "adapter"),
    [
        ("gemma", "gemma", ""),
        ("gemma_lora_doll", "gemma", "doll"),
        # a model comes first
        ("gemma_lora_sheep", "gemma_lora_sheep", ""),
        ("llama:doll", "llama", "doll"),
        ("llama:none", "llama:none", ""),
        # it may be named by a version that is not loaded yet
        ("plain_lora_doll", "plain", "doll"),
        ("nobody_lora_doll", "nobody_lora_doll", ""),
        ("", "", ""),
    ],
)
def test_a_name_is_that_of_a_model_and_an_adapter(name: str, model: str, adapter: str) -> None:
    assert (model, adapter) == split(catalogue(), name)
