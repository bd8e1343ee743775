"""Keys of the response cache: equal for what is the same to a model, and for nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.cache_keys import Keys, is_cached, keys_of
from zmqtriton_floor.wire import Reference, RequestBody, Tensor

KEYS = Keys(b"secret")
LEFT = Tensor("LEFT", 8, [2], b"12345678")
RIGHT = Tensor("RIGHT", 8, [1], b"1234")
BODY = RequestBody("id", {"p": 1}, ["A", "B"], [LEFT, RIGHT])


def test_names_of_requests_parameters_and_orders_mean_nothing() -> None:
    same = RequestBody("other", {"p": 2}, ["B", "A"], [RIGHT, LEFT])

    assert KEYS.of(BODY) == KEYS.of(same)
    assert 32 == len(KEYS.of(BODY))


@pytest.mark.parametrize(
    "body",
    [
        BODY._replace(inputs=[LEFT, RIGHT._replace(data=b"1235")]),
        BODY._replace(inputs=[LEFT, RIGHT._replace(shape=[1, 1])]),
        BODY._replace(inputs=[LEFT, RIGHT._replace(datatype=9)]),
        BODY._replace(inputs=[LEFT, RIGHT._replace(name="RIGHT2")]),
        BODY._replace(inputs=[LEFT]),
        BODY._replace(inputs=[LEFT._replace(name="RIGHT"), RIGHT._replace(name="LEFT")]),
        BODY._replace(outputs=["A"]),
        BODY._replace(outputs=[]),
    ],
)
def test_all_that_may_change_the_answer_changes_the_key(body: RequestBody) -> None:
    assert KEYS.of(BODY) != KEYS.of(body)


def test_without_the_secret_nobody_can_tell_a_key() -> None:
    assert KEYS.of(BODY) != Keys(b"guessed").of(BODY)


def test_large_tensors_are_hashed_where_they_are_placed() -> None:
    body = BODY._replace(inputs=[LEFT._replace(data=bytes(INLINE_BYTES + 1))])

    assert b"" == KEYS.of(body)


def test_a_server_without_a_cache_has_no_keys() -> None:
    assert keys_of("") is None
    assert keys_of("00") is not None
    configs: list[dict[str, Any]] = [
        {},
        {"response_cache": {}},
        {"response_cache": {"enable": True}},
    ]
    assert [False, False, True] == [is_cached(config) for config in configs]


def test_a_large_tensor_has_the_same_part_by_its_bytes_and_by_its_digest() -> None:
    data = bytes(INLINE_BYTES + 1)
    reference = Reference(7, 1, 2, 0, len(data))
    placed = Tensor("A", 6, [len(data)], reference)

    marked, part = Keys(b"s").marked(placed, data)

    assert part == Keys(b"s").of_tensor(placed, data)
    assert part == Keys(b"s").of_reference(marked, marked.data)
    assert part != Keys(b"another").of_tensor(placed, data)
    assert part != Keys(b"s").of_tensor(placed._replace(name="B"), data)


def test_a_request_with_a_reference_that_nobody_has_looked_at_has_no_key() -> None:
    data = bytes(INLINE_BYTES + 1)
    placed = Tensor("A", 6, [len(data)], Reference(7, 1, 2, 0, len(data)))
    body = RequestBody("", {}, [], [placed])
    marked, _ = Keys(b"s").marked(placed, data)

    assert Keys(b"s").of_placed(body) == b""
    assert Keys(b"s").of_placed(body._replace(inputs=[marked])) != b""
