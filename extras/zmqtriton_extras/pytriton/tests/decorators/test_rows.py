"""A function of rows answers the same, whatever decorators are around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from zmqtriton_extras.pytriton.decorators import (
    batch,
    fill_optionals,
    group_by_keys,
    group_by_values,
    pad_batch,
)
from zmqtriton_extras.pytriton.model_config import DynamicBatcher
from zmqtriton_extras.pytriton.model_config.triton_model_config import TensorSpec
from zmqtriton_extras.pytriton.proxy.types import Request
from zmqtriton_extras.pytriton.tests.bindings import bind, plain

pytestmark = pytest.mark.slow

INPUTS = [TensorSpec("a", (1,), np.int64), TensorSpec("b", (1,), object)]
ROWS = some.lists(
    some.tuples(some.integers(-2, 300), some.sampled_from([b"", b"a", b"bb", b"\0", b"ab"])),
    min_size=1,
    max_size=4,
)
REQUESTS = some.lists(some.tuples(ROWS, some.booleans()), min_size=1, max_size=4)


def infer(a: np.ndarray, b: np.ndarray) -> Any:
    return {"sum": 2 * a, "text": b + b"!"}


def undecorated(a: int, b: bytes) -> tuple[list[int], list[bytes]]:
    return [2 * a], [b + b"!"]


DECORATED = {
    "batch": batch(infer),
    "group_by_values": batch(group_by_values("a", "b")(infer)),
    "group_by_one_value": batch(group_by_values("b")(infer)),
    "pad_batch": batch(pad_batch(infer)),
    "both": batch(group_by_values("a")(pad_batch(infer))),
}


@pytest.mark.parametrize("name", list(DECORATED))
@given(requests=REQUESTS)
def test_decorators_change_no_answer(name: str, requests: Any) -> None:
    decorated = fill_optionals(b=np.array([b"?"], object))(group_by_keys(DECORATED[name]))
    bind(
        decorated,
        inputs=INPUTS,
        max_batch_size=16,
        batcher=DynamicBatcher(preferred_batch_size=[2, 5]),
    )
    sent = []
    for rows, is_complete in requests:
        inputs = {"a": np.array([[a] for a, _ in rows])}
        if is_complete:
            inputs["b"] = np.array([[b] for _, b in rows], object)
        sent.append(Request(inputs))

    responses = decorated(sent)

    assert [
        [undecorated(a, b if is_complete else b"?") for a, b in rows]
        for rows, is_complete in requests
    ] == [list(zip(*map(plain, (r["sum"], r["text"])), strict=True)) for r in responses]
