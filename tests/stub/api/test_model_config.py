from __future__ import annotations

import json
from typing import Any

import pytest

from zmqtriton_stub.api.pb_utils import ModelConfig

_TENSOR: dict[str, Any] = {"name": "A", "data_type": "TYPE_FP32", "dims": [4]}


def _config(**fields: Any) -> ModelConfig:
    return ModelConfig(json.dumps({"name": "m", "max_batch_size": 0, **fields}))


@pytest.mark.row("A80")
def test_as_dict_is_the_configuration_itself() -> None:
    config = _config()

    config.as_dict()["max_batch_size"] = 4

    assert json.loads(config.as_json())["max_batch_size"] == 4


@pytest.mark.row("A81")
def test_max_batch_size_may_grow_only() -> None:
    config = _config(max_batch_size=4)
    for size in (8, 8):
        config.set_max_batch_size(size)
        assert config.as_dict()["max_batch_size"] == size

    with pytest.raises(ValueError, match="specified max_batch_size") as caught:
        config.set_max_batch_size(2)
    assert str(caught.value) == (
        "configuration specified max_batch_size 8, but in auto-complete-config function for model "
        "'m' specified max_batch_size 2"
    )


@pytest.mark.row("A82")
def test_dynamic_batching_is_set_once_and_never_beside_another_scheduler() -> None:
    config = _config()
    config.set_dynamic_batching()
    config.as_dict()["dynamic_batching"]["preferred_batch_size"] = [2]
    config.set_dynamic_batching()
    assert config.as_dict()["dynamic_batching"] == {"preferred_batch_size": [2]}

    with pytest.raises(ValueError, match="sequence_batching"):
        _config(sequence_batching={}).set_dynamic_batching()


@pytest.mark.row("A83", "A84")
def test_tensors_are_added_or_completed() -> None:
    config = _config(input=[{"name": "A", "data_type": "TYPE_INVALID", "dims": []}])

    config.add_input({**_TENSOR, "optional": True})
    config.add_input({**_TENSOR, "name": "B"})
    config.add_output(_TENSOR)

    assert config.as_dict()["input"] == [{**_TENSOR, "optional": True}, {**_TENSOR, "name": "B"}]
    assert config.as_dict()["output"] == [_TENSOR]


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (
            {"data_type": "TYPE_FP32", "dims": [4]},
            "input in auto-complete-config function for model 'm' is missing 'name' property.",
        ),
        (
            {"name": "A", "dims": [4]},
            "input 'A' in auto-complete-config function for model 'm' is missing 'data_type' "
            "property.",
        ),
        (
            {**_TENSOR, "reshape": []},
            "input 'A' in auto-complete-config function for model 'm' contains property other than "
            "'name', 'data_type', 'dims' and 'optional'.",
        ),
        (
            {**_TENSOR, "data_type": "TYPE_INT8"},
            "unable to load model 'm', configuration expects datatype TYPE_FP32 for input 'A', "
            "model provides TYPE_INT8",
        ),
        (
            {**_TENSOR, "dims": [5]},
            "model 'm', tensor 'A': the model expects dims [5] but the model configuration "
            "specifies dims [4]",
        ),
        (
            {**_TENSOR, "optional": True},
            "model 'm', tensor 'A': the model expects optional True but the model configuration "
            "specifies optional False",
        ),
    ],
)
@pytest.mark.row("A83")
def test_a_tensor_that_contradicts_is_refused(tensor: dict[str, Any], text: str) -> None:
    config = _config(input=[{**_TENSOR, "optional": False}])

    with pytest.raises(ValueError, match="'m'") as caught:
        config.add_input(tensor)

    assert str(caught.value) == text


@pytest.mark.row("A84")
def test_an_output_is_never_optional() -> None:
    with pytest.raises(ValueError, match="other than 'name', 'data_type' and 'dims'\\."):
        _config().add_output({**_TENSOR, "optional": True})


@pytest.mark.row("A85")
def test_the_transaction_policy_may_be_set_but_not_turned_around() -> None:
    config = _config()
    config.set_model_transaction_policy({"decoupled": True})
    config.set_model_transaction_policy({"decoupled": True})
    assert config.as_dict()["model_transaction_policy"] == {"decoupled": True}

    with pytest.raises(ValueError, match="decoupled") as caught:
        config.set_model_transaction_policy({"decoupled": False})
    assert str(caught.value) == (
        "trying to change decoupled property in auto-complete-config for model 'm', which is "
        "already set to 'True'."
    )
    with pytest.raises(ValueError, match="other than 'decoupled'"):
        config.set_model_transaction_policy({"other": 1})
