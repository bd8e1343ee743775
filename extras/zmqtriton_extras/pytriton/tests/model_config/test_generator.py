"""A bound model as the configuration that our own reader of a load accepts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zmqtriton.config.instances import instance_specs
from zmqtriton.config.model_config import load_config
from zmqtriton.config.pbtxt import to_dict
from zmqtriton_extras.pytriton.exceptions import PyTritonBadParameterError
from zmqtriton_extras.pytriton.model_config import (
    DeviceKind,
    DynamicBatcher,
    ModelConfig,
    ModelWarmup,
    QueuePolicy,
    Tensor,
    TimeoutAction,
    WarmupInput,
)
from zmqtriton_extras.pytriton.model_config.generator import ModelConfigGenerator
from zmqtriton_extras.pytriton.model_config.parser import ModelConfigParser
from zmqtriton_extras.pytriton.model_config.signature import describe_model
from zmqtriton_extras.pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig

INPUTS = [Tensor((-1,), np.float32), Tensor((1, 2), bytes, name="text"), Tensor((3,), np.int8)]
OUTPUTS = [Tensor(shape=(2,), dtype=np.dtype("int64")), Tensor((-1,), np.bool_)]


def generator(config: ModelConfig | None = None, **options: Any) -> ModelConfigGenerator:
    inputs, outputs = options.pop("inputs", INPUTS), options.pop("outputs", OUTPUTS)
    return ModelConfigGenerator(
        describe_model("m", inputs, outputs, config or ModelConfig(), **options)
    )


def loaded(model: ModelConfigGenerator) -> dict[str, Any]:
    """Return the configuration as the server reads it for a load."""
    config = load_config("m", Path("m"), None, override=model.to_json(), auto_complete=False)
    return to_dict(config)


@pytest.mark.row("J03")
def test_tensors_without_a_name_are_numbered_by_their_position() -> None:
    config = loaded(generator())

    assert ["INPUT_1", "text", "INPUT_3"] == [tensor["name"] for tensor in config["input"]]
    assert ["OUTPUT_1", "OUTPUT_2"] == [tensor["name"] for tensor in config["output"]]
    assert [[-1], [1, 2], [3]] == [tensor["dims"] for tensor in config["input"]]
    assert ["TYPE_FP32", "TYPE_STRING", "TYPE_INT8"] == [t["data_type"] for t in config["input"]]
    assert ["TYPE_INT64", "TYPE_BOOL"] == [tensor["data_type"] for tensor in config["output"]]
    assert [False] * 3 == [tensor["optional"] for tensor in config["input"]]


@pytest.mark.row("J03")
@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (bool, "BOOL"),
        *[(getattr(np, name), name.upper()) for name in ("int8", "int16", "int32", "int64")],
        *[(getattr(np, name), name.upper()) for name in ("uint8", "uint16", "uint32", "uint64")],
        (np.float16, "FP16"),
        (np.float32, "FP32"),
        (np.float64, "FP64"),
        ("float32", "FP32"),
        (np.dtype("float32"), "FP32"),
        (int, "INT64"),
        (float, "FP64"),
        (object, "STRING"),
        (bytes, "STRING"),
        (np.bytes_, "STRING"),
        (np.object_, "STRING"),
        (np.dtype("S3"), "STRING"),
    ],
)
def test_types_of_numpy_have_datatypes(dtype: Any, expected: str) -> None:
    (tensor,) = generator(inputs=[Tensor((1,), dtype)]).get_config()["input"]

    assert f"TYPE_{expected}" == tensor["data_type"]


@pytest.mark.row("J03")
@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        (np.complex64, "Tensors cannot have the type complex64."),
        (str, "Tensors cannot have the type str_. Use bytes for text."),
        ("no type", "'no type' is not a type of NumPy's."),
    ],
)
def test_types_without_a_datatype_are_refused(dtype: Any, text: str) -> None:
    with pytest.raises(PyTritonBadParameterError) as caught:
        generator(inputs=[Tensor((1,), dtype)]).get_config()

    assert text == str(caught.value)


@pytest.mark.row("J03")
def test_an_input_may_be_optional_and_an_output_not() -> None:
    optional = Tensor((1,), np.float32, optional=True)

    (tensor,) = loaded(generator(inputs=[optional]))["input"]
    with pytest.raises(PyTritonBadParameterError) as caught:
        generator(outputs=[optional]).get_config()

    assert tensor["optional"] is True
    assert (
        "Optional flag for outputs is not supported. Outputs marked as optional: OUTPUT_1."
    ) == str(caught.value)


@pytest.mark.row("J03")
def test_a_tensor_is_frozen() -> None:
    assert np.float32 is Tensor((1,), np.dtype("float32")).dtype
    with pytest.raises(AttributeError):
        INPUTS[0].name = "other"  # type: ignore[misc]


@pytest.mark.row("J04")
def test_a_model_batches_up_to_four_requests_dynamically() -> None:
    config = loaded(generator())

    assert 4 == config["max_batch_size"]
    assert 0 == config["dynamic_batching"]["max_queue_delay_microseconds"]
    assert "python" == config["backend"]
    assert "response_cache" not in config
    assert "model_transaction_policy" not in config


@pytest.mark.row("J04")
def test_a_model_may_not_batch() -> None:
    written = generator(ModelConfig(batching=False, max_batch_size=16))

    assert 0 == loaded(written)["max_batch_size"]
    assert "dynamic_batching" not in loaded(written)
    assert written.to_text().endswith("max_batch_size: 0\n")


@pytest.mark.row("J04")
def test_a_model_has_a_response_cache_or_is_decoupled() -> None:
    assert {"enable": True} == loaded(generator(ModelConfig(response_cache=True)))["response_cache"]
    policy = loaded(generator(ModelConfig(decoupled=True)))["model_transaction_policy"]
    assert policy["decoupled"] is True


@pytest.mark.row("J04")
def test_each_callable_is_an_instance() -> None:
    written = generator(instances=3)
    config = load_config("m", Path("m"), None, override=written.to_json(), auto_complete=False)

    assert 3 == len(instance_specs(config))
    assert ["KIND_CPU"] == [group["kind"] for group in to_dict(config)["instance_group"]]


@pytest.mark.row("J04")
def test_a_batch_has_at_least_one_request() -> None:
    with pytest.raises(PyTritonBadParameterError) as caught:
        generator(ModelConfig(max_batch_size=0)).get_config()

    assert "The `max_batch_size` must be greater or equal to 1." == str(caught.value)


@pytest.mark.row("J05")
def test_all_fields_of_the_batcher_reach_the_server() -> None:
    batcher = DynamicBatcher(
        max_queue_delay_microseconds=100,
        preferred_batch_size=[2, 4],
        priority_levels=2,
        default_priority_level=1,
        default_queue_policy=QueuePolicy(TimeoutAction.DELAY, 5, True, 7),
        priority_queue_policy={2: QueuePolicy(max_queue_size=3)},
    )

    config = loaded(generator(ModelConfig(batcher=batcher)))

    assert {
        "preferred_batch_size": [2, 4],
        "max_queue_delay_microseconds": 100,
        "preserve_ordering": False,
        "priority_levels": 2,
        "default_priority_level": 1,
        "default_queue_policy": {
            "timeout_action": "DELAY",
            "default_timeout_microseconds": 5,
            "allow_timeout_override": True,
            "max_queue_size": 7,
        },
        "priority_queue_policy": {
            "2": {
                "timeout_action": "REJECT",
                "default_timeout_microseconds": 0,
                "allow_timeout_override": False,
                "max_queue_size": 3,
            }
        },
    } == config["dynamic_batching"]
    ordered = loaded(generator(ModelConfig(batcher=DynamicBatcher(preserve_ordering=True))))
    assert ordered["dynamic_batching"]["preserve_ordering"] is True


@pytest.mark.row("J05")
@pytest.mark.parametrize(
    ("batcher", "text"),
    [
        (
            DynamicBatcher(priority_levels=2, default_priority_level=3),
            "The `default_priority_level` must be between 1 and 2.",
        ),
        (
            DynamicBatcher(priority_queue_policy={1: QueuePolicy()}),
            "Provide the `priority_levels` if you want to define `priority_queue_policy` "
            "for Dynamic Batching.",
        ),
        (
            DynamicBatcher(priority_levels=2, priority_queue_policy={3: QueuePolicy()}),
            "Invalid `priority`=3 provided. The value must be between 1 and 2.",
        ),
    ],
)
def test_priorities_that_do_not_exist_are_refused(batcher: DynamicBatcher, text: str) -> None:
    with pytest.raises(PyTritonBadParameterError) as caught:
        generator(ModelConfig(batcher=batcher)).get_config()

    assert text == str(caught.value)


@pytest.mark.row("J05")
def test_the_warm_up_is_left_to_the_host() -> None:
    warmup = ModelWarmup("zeros", 1, {"INPUT_1": WarmupInput(np.float32, (1,), True)}, 1)

    assert [] == loaded(generator(ModelConfig(model_warmup=[warmup])))["model_warmup"]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    config = TritonModelConfig(
        "m",
        max_batch_size=16,
        batcher=DynamicBatcher(7, [4], True, 3, 2, QueuePolicy(), {1: QueuePolicy()}),
        instance_group={DeviceKind.KIND_CPU: 2, DeviceKind.KIND_GPU: 1},
        decoupled=True,
        backend_parameters={"key": "value"},
        inputs=[TensorSpec("a", (1,), np.float32, True), TensorSpec("b", (-1, 2), np.bytes_)],
        outputs=[TensorSpec("c", (1,), np.int64)],
        model_warmup=[
            ModelWarmup(
                "warm",
                2,
                {
                    "a": WarmupInput(np.float32, (1,), zero_data=True),
                    "b": WarmupInput(np.bytes_, (2,), random_data=True),
                    "c": WarmupInput(np.int64, (3,), input_data_file="data"),
                },
                3,
            )
        ],
    )
    path = tmp_path / "model" / "config.pbtxt"
    written = ModelConfigGenerator(config)
    written.to_file(path)

    assert config == ModelConfigParser.from_dict(json.loads(written.to_json()))
    read = ModelConfigParser.from_file(config_path=path)
    assert config.model_warmup is not None
    assert read.model_warmup is not None
    assert config.model_warmup[0].inputs.keys() == read.model_warmup[0].inputs.keys()
    read.model_warmup = config.model_warmup
    assert config == read


def test_a_model_without_batches_stays_one_in_a_file(tmp_path: Path) -> None:
    generator(ModelConfig(batching=False)).to_file(tmp_path / "config.pbtxt")

    assert not ModelConfigParser.from_file(config_path=tmp_path / "config.pbtxt").batching
    assert 1 == (tmp_path / "config.pbtxt").read_text().count("max_batch_size: 0")


@pytest.mark.parametrize(
    ("sample", "text"),
    [
        (
            WarmupInput(np.float32, (1,)),
            "One of the `zero_data`, `random_data`, or `input_data_file` must be provided for "
            "warmup input `a`.",
        ),
        (WarmupInput(np.float32, (), zero_data=True), "Dimension for a not defined."),
    ],
)
def test_a_warm_up_without_data_is_not_written(sample: WarmupInput, text: str) -> None:
    config = TritonModelConfig("m", model_warmup=[ModelWarmup("w", 1, {"a": sample}, 1)])

    with pytest.raises(PyTritonBadParameterError) as caught:
        ModelConfigGenerator(config).get_config()

    assert text == str(caught.value)
