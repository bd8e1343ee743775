from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from zmqtriton_floor.datatypes import BY_NAME, BYTES
from zmqtriton_floor.errors import InternalError, InvalidArgument
from zmqtriton_floor.tensors import decode_bytes
from zmqtriton_floor.wire import ResponseBody, Tensor, VersionInfo
from zmqtriton_frontends.inference.catalogue import ModelVersion
from zmqtriton_frontends.inference.classification import classify


def model(batch: int = 0, **labels: list[str]) -> ModelVersion:
    config = json.dumps({"name": "m", "max_batch_size": batch})
    return ModelVersion(
        VersionInfo(1, "m", 1, "READY", None, 1, config, b"", labels=json.dumps(labels))
    )


def tensor(values: Any, datatype: str = "FP32") -> Tensor:
    array = np.array(values, BY_NAME[datatype].numpy)
    return Tensor("O", BY_NAME[datatype].number, list(array.shape), array.tobytes())


def classes(of: ModelVersion, output: Tensor, count: int) -> tuple[list[int], list[bytes]]:
    (made,) = classify(of, ResponseBody({}, [output]), {"O": count}).outputs
    assert ("O", BYTES) == (made.name, made.datatype)
    return made.shape, decode_bytes(made.data)


@pytest.mark.row("C55")
def test_the_largest_come_first_with_the_labels_that_there_are() -> None:
    labelled = model(O=["cat", "", "bird"])

    assert ([3], [b"2.000000:2:bird", b"1.000000:0:cat", b"1.000000:1"]) == classes(
        labelled, tensor([1, 1, 2, 0.5]), 3
    )


def test_of_many_equals_the_first_are_taken() -> None:
    values = [1.0, 2.0] * 1000

    shape, texts = classes(model(), tensor(values), 3)

    assert ([3], [b"2.000000:1", b"2.000000:3", b"2.000000:5"]) == (shape, texts)


@pytest.mark.row("C55")
def test_each_row_of_a_batch_has_its_own() -> None:
    shape, texts = classes(model(4), tensor([[1, 2], [4, 3]]), 1)

    assert ([2, 1], [b"2.000000:1", b"4.000000:0"]) == (shape, texts)


@pytest.mark.parametrize("count", [1, 2, 2**63])
def test_nothing_has_no_classes(count: int) -> None:
    assert ([0], []) == classes(model(), tensor([]), count)
    assert ([2, 0], []) == classes(model(4), tensor([[], []]), count)
    assert ([0, 0], []) == classes(model(4), tensor(np.zeros((0, 3))), 0)


def test_what_is_no_number_is_the_least() -> None:
    _, texts = classes(model(), tensor([float("nan"), -1, float("inf")]), 3)

    assert [b"inf:2", b"-1.000000:1", b"nan:0"] == texts


@pytest.mark.parametrize("datatype", ["INT8", "UINT8", "INT64", "UINT64"])
def test_integers_are_written_whole(datatype: str) -> None:
    info = np.iinfo(BY_NAME[datatype].numpy)

    _, texts = classes(model(), tensor([info.min, info.max, 1], datatype), 3)

    assert [f"{info.max}:1".encode(), b"1:2", f"{info.min}:0".encode()] == texts


@pytest.mark.parametrize("datatype", ["BOOL", "FP16", "BF16", "BYTES"])
@pytest.mark.row("C55")
def test_what_has_no_order_has_no_classes(datatype: str) -> None:
    output = Tensor("O", BY_NAME[datatype].number, [0], b"")

    with pytest.raises(InvalidArgument) as error:
        classes(model(), output, 1)

    assert error.value.text == (
        f"class result not available for output due to unsupported type '{datatype}'"
    )


def test_an_output_of_another_size_than_its_shape_is_an_error() -> None:
    with pytest.raises(InternalError):
        classes(model(), tensor([1, 2])._replace(shape=[3]), 1)


def test_other_outputs_stay_as_they_are() -> None:
    response = ResponseBody({"k": 1}, [tensor([1])])

    assert response == classify(model(), response, {"P": 1})
