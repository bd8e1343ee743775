"""`batch`, `sample` and `pad_batch`, as in PyTriton 0.7.0 but where it says so."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest

from zmqtriton_extras.pytriton.decorators import batch, convert_output, pad_batch, sample
from zmqtriton_extras.pytriton.exceptions import PyTritonValidationError
from zmqtriton_extras.pytriton.model_config import DynamicBatcher
from zmqtriton_extras.pytriton.tests.bindings import array, bind, plain, request

REQUESTS = [request(a=[[1]]), request(a=[[2], [3]])]
TWICE = [{"sum": [[2.0]]}, {"sum": [[4.0], [6.0]]}]


@batch
def twice(a: np.ndarray) -> Any:
    return {"sum": 2 * a}


@pytest.mark.row("J20")
def test_requests_are_one_batch_and_each_gets_its_rows() -> None:
    seen = []

    @batch
    def infer(**inputs: np.ndarray) -> Any:
        seen.append(plain(inputs))
        return {"sum": inputs["a"] + inputs["b"]}

    responses = infer([request(a=[[1]], b=[[10]]), request(b=[[20], [30]], a=[[2], [3]])])

    assert [{"a": [[1], [2], [3]], "b": [[10], [20], [30]]}] == seen
    assert [{"sum": [[11]]}, {"sum": [[22], [33]]}] == plain(responses)


@pytest.mark.row("J20")
def test_a_batch_may_be_changed_without_changing_the_requests() -> None:
    @batch
    def infer(a: np.ndarray) -> Any:
        a += 1
        return {"sum": a}

    only = request(a=[[1]])

    assert [{"sum": [[2]]}] == plain(infer([only]))
    assert {"a": [[1]]} == plain(only)


@pytest.mark.row("J20")
@pytest.mark.parametrize("kind", [list, tuple])
def test_a_sequence_of_outputs_has_the_names_and_the_order_of_the_model(kind: type) -> None:
    @batch
    def infer(a: np.ndarray) -> Any:
        return kind([a, a.astype(np.int32)])

    assert [{"sum": [[1.0]], "count": [[1]]}] == plain(bind(infer)([request(a=[[1]])]))


@pytest.mark.row("J20")
def test_a_sequence_of_another_length_is_refused() -> None:
    @batch
    def infer(a: np.ndarray) -> Any:
        return [a]

    with pytest.raises(PyTritonValidationError) as caught:
        bind(infer)([request(a=[[1]])])

    assert "Outputs length different than config outputs length" == str(caught.value)


def test_outputs_of_another_type_are_refused() -> None:
    @batch
    def infer(a: np.ndarray) -> Any:
        return a

    with pytest.raises(PyTritonValidationError) as caught:
        infer([request(a=[[1]])])

    assert "Unsupported output type <class 'numpy.ndarray'>." == str(caught.value)


@pytest.mark.row("J20")
def test_requests_with_other_inputs_are_refused() -> None:
    with pytest.raises(PyTritonValidationError) as caught:
        twice([request(a=[[1]]), request(b=[[1]])])

    assert "Cannot batch requests with different set of inputs keys" == str(caught.value)


@pytest.mark.row("J20")
def test_outputs_of_another_length_are_refused_all_at_once() -> None:
    @batch
    def infer(a: np.ndarray) -> Any:
        return {"sum": a[:1], "count": a, "more": a[:1, 0]}

    text = (
        "Received output tensors with different batch sizes: sum: (1, 1), more: (1,). "
        "Expected batch size: 2. "
    )
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        infer([request(a=[[1], [2]])])


def test_an_output_without_a_batch_is_refused_like_one_of_another_length() -> None:
    """PyTriton fails with an IndexError."""

    @batch
    def infer(a: np.ndarray) -> Any:
        return {"sum": np.float32(1)}

    with pytest.raises(ValueError, match=r"batch sizes: sum: \(\)\. Expected batch size: 1\. $"):
        infer([request(a=[[1]])])


@pytest.mark.row("J07", "J20")
def test_all_that_a_generator_yields_is_shared_out() -> None:
    @batch
    def infer(a: np.ndarray) -> Iterator[Any]:
        yield {"sum": 2 * a}
        yield [a, a]

    both = [{"sum": [[1]], "count": [[1]]}, {"sum": [[2], [3]], "count": [[2], [3]]}]
    assert [TWICE, both] == [plain(responses) for responses in bind(infer)(REQUESTS)]


@pytest.mark.row("J07", "J20")
def test_coroutines_and_asynchronous_generators_are_awaited() -> None:
    """PyTriton refuses their type."""

    @batch
    async def infer(a: np.ndarray) -> Any:
        return {"sum": 2 * a}

    @batch
    async def stream(a: np.ndarray) -> AsyncIterator[Any]:
        yield {"sum": 2 * a}

    async def collect() -> list[Any]:
        return [await infer(REQUESTS), *[responses async for responses in stream(REQUESTS)]]

    assert [TWICE, TWICE] == plain(asyncio.run(collect()))


def test_requests_may_be_dictionaries() -> None:
    """PyTriton asks them for their span."""
    assert TWICE == plain(twice([dict(one) for one in REQUESTS]))


def test_further_arguments_are_passed_on() -> None:
    @batch
    def infer(first: int, *, a: np.ndarray, factor: int) -> Any:
        return {"sum": first + factor * a}

    assert [{"sum": [[7]]}] == plain(infer([request(a=[[2]])], 1, factor=3))


@pytest.mark.row("J21")
def test_a_sample_is_the_only_request() -> None:
    @sample
    def infer(a: np.ndarray, b: Any = None) -> Any:
        return {"sum": 2 * a}

    assert [{"sum": [2, 4]}] == plain(infer([request(a=[1, 2])]))


@pytest.mark.row("J21")
def test_outputs_for_a_sample_may_be_a_sequence_or_yielded() -> None:
    """PyTriton refuses generators."""

    @sample
    def infer(a: np.ndarray) -> Any:
        return a, a

    @sample
    def stream(a: np.ndarray) -> Iterator[Any]:
        yield {"sum": a}

    assert [{"sum": [1], "count": [1]}] == plain(bind(infer)([request(a=[1])]))
    assert [[{"sum": [1]}]] == plain(list(stream([request(a=[1])])))


def test_outputs_are_converted_for_decorators_of_the_users_own() -> None:
    assert {"sum": 1, "count": 2} == convert_output((1, 2), model_config=bind_model())


def bind_model() -> Any:
    bound = bind(lambda: None)
    return bound.__triton_context__.model_configs[bound]


@pytest.mark.row("J26")
@pytest.mark.parametrize(
    ("preferred", "size", "expected"),
    [
        (None, 3, 8),
        ([4, 2], 1, 2),
        ([4, 2], 2, 2),
        ([4, 2], 3, 4),
        ([4, 2], 5, 8),
        ([4, 2], 8, 8),
    ],
)
def test_a_batch_is_padded_by_its_last_row(preferred: Any, size: int, expected: int) -> None:
    seen = []

    @pad_batch
    def infer(a: np.ndarray, b: np.ndarray) -> Any:
        seen.extend([plain(a), plain(b)])
        return {}

    bind(infer, batcher=DynamicBatcher(preferred_batch_size=preferred))
    infer(a=np.arange(size), b=np.arange(size)[:, np.newaxis])

    rows = [*range(size), *[size - 1] * (expected - size)]
    assert [rows, [[row] for row in rows]] == seen


def test_a_model_without_a_batcher_is_padded_to_its_largest_batch() -> None:
    infer = bind(pad_batch(lambda a: {"count": np.array(len(a))}), batcher=None, max_batch_size=3)

    assert {"count": 3} == plain(infer(a=array([[1]])))


@pytest.mark.row("J26")
def test_padding_is_cut_off_the_outputs() -> None:
    """PyTriton leaves it, so that `batch` refuses them."""

    @batch
    @pad_batch
    def infer(a: np.ndarray) -> Any:
        return [2 * a, np.arange(len(a))]

    @batch
    @pad_batch
    def stream(a: np.ndarray) -> Iterator[Any]:
        yield {"sum": 2 * a}

    expected = [{"sum": [[2.0]], "count": [0]}, {"sum": [[4.0], [6.0]], "count": [1, 2]}]
    assert expected == plain(bind(infer)(REQUESTS))
    assert [TWICE] == [plain(responses) for responses in bind(stream)(REQUESTS)]
