from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from tests.frontends.fake_gateway import tensor_config, version_info
from tests.frontends.http_api.text_models import response
from zmqtriton_extras.openai.embeddings import Batch, batches, document, read
from zmqtriton_extras.openai.problems import RefusedField
from zmqtriton_extras.openai.tensor_names import TensorNames
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.wire import ResponseBody
from zmqtriton_frontends.inference.model_version import ModelVersion

TEXTS = ["a", "bc", "def", "g", "h"]


def names(dims: list[int], max_batch_size: int = 0, **more: Any) -> TensorNames:
    config: dict[str, Any] = {
        "max_batch_size": max_batch_size,
        "input": [
            tensor_config("text_input", "STRING", dims),
            tensor_config("return_num_input_tokens", "BOOL", [1], optional=True),
        ],
        "output": [
            tensor_config("embedding", "FP32", [-1]),
            tensor_config("num_input_tokens", "INT64", [1]),
        ],
        **more,
    }
    model = ModelVersion(version_info("m", **config))
    return TensorNames(model.config, model.signature)


@pytest.mark.parametrize(
    ("model", "shapes"),
    [
        (names([1], 2), [[2, 1], [2, 1], [1, 1]]),
        (names([-1], 8), [[5, 1]]),
        (names([-1]), [[5]]),
        (names([1]), [[1]] * 5),
        (names([]), [[]] * 5),
        (names([1, 1], 8), [[5, 1, 1]]),
    ],
)
def test_a_model_gets_as_many_texts_as_it_takes(model: TensorNames, shapes: Any) -> None:
    bodies = [batch.body("id") for batch in batches(model, TEXTS)]

    assert shapes == [body.inputs[0].shape for body in bodies]
    encoded = b"".join(len(t).to_bytes(4, "little") + t.encode() for t in TEXTS)
    assert encoded == b"".join(body.inputs[0].data for body in bodies)


def test_tokens_are_asked_for() -> None:
    (batch,) = batches(names([1], 8), TEXTS)

    wish = batch.body("id").inputs[1]

    assert (wish.name, wish.shape, wish.data) == ("return_num_input_tokens", [5, 1], b"\1" * 5)


def test_vectors_are_told_in_order_as_numbers_or_packed() -> None:
    done = list(batches(names([1], 2), ["a", "b", "c"]))
    done[0].take(response(embedding=[[1.5, 2.0], [3.0, 4.0]], num_input_tokens=[3, 4]))
    done[1].take(response(embedding=[[5.0, 6.0]], num_input_tokens=[5]))

    plain = json.loads(document("m", done, is_base64=False))
    packed = json.loads(document("m", done, is_base64=True))

    rows = [[1.5, 2.0], [3.0, 4.0], [5.0, 6.0]]
    assert rows == [one["embedding"] for one in plain["data"]]
    assert [one["index"] for one in plain["data"]] == [0, 1, 2]
    assert plain["usage"] == {"prompt_tokens": 12, "total_tokens": 12}
    unpacked = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in packed["data"]]
    assert rows == [row.tolist() for row in unpacked]


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ([[1.0, 2.0, 3.0]], "has 3 elements for 2 texts"),
        ([], "has 0 elements for 2 texts"),
        ([float("nan")] * 2, "not finite"),
        ([b"1.5", b"2"], "must hold numbers"),
    ],
)
def test_what_is_no_vector_for_each_text_is_an_error(output: Any, text: str) -> None:
    (batch,) = batches(names([-1]), ["a", "b"])

    with pytest.raises(InternalError, match=text):
        _answer(batch, response(embedding=output))


def _answer(batch: Batch, body: ResponseBody) -> bytes:
    batch.take(body)
    return document("m", [batch], is_base64=False)


def test_a_model_that_does_not_answer_has_no_vectors() -> None:
    (batch,) = batches(names([-1]), ["a"])

    with pytest.raises(InternalError, match="has 0 elements for 1 texts"):
        document("m", [batch], is_base64=False)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (names([1], input=[tensor_config("text_input", "INT32", [1])]), "has no input"),
        (names([1], output=[tensor_config("OUTPUT", "FP32", [-1])]), "has no output 'embedding'"),
        (names([2]), "has no input 'text_input' for one text"),
    ],
)
def test_a_model_that_makes_no_vectors_is_refused(model: TensorNames, text: str) -> None:
    with pytest.raises(RefusedField, match=text):
        list(batches(model, TEXTS))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"input": []}, "input"),
        ({"input": [1]}, "input"),
        ({"input": "a", "model": 1}, "model"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "encoding_format": ["float"]}, "encoding_format"),
        ({"input": "a", "dimensions": 3}, "dimensions"),
    ],
)
def test_a_request_that_is_wrong_is_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(RefusedField) as refused:
        read({"model": "m", **fields})

    assert named == refused.value.field
