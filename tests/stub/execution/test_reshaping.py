from __future__ import annotations

from typing import Any

import pytest

from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.reshaping import Reshaping
from zmqtriton_floor.wire import Tensor


def config(dims: list[int], shape: list[int], batch: int = 0) -> dict[str, Any]:
    """One input X that the model sees as `shape`, and one output Y that it makes as `shape`."""
    reshape = {"shape": shape}
    return {
        "max_batch_size": batch,
        "input": [{"name": "X", "dims": dims, "reshape": reshape}, {"name": "P", "dims": [1]}],
        "output": [{"name": "Y", "dims": dims, "reshape": reshape}, {"name": "Q", "dims": [1]}],
    }


def tensor(name: str, shape: list[int]) -> Tensor:
    return Tensor(name, 11, shape, b"")


@pytest.mark.parametrize(
    ("dims", "shape", "batch", "outer", "seen"),
    [
        ([2, 3], [6], 0, [2, 3], [6]),
        ([-1, 1], [-1], 0, [5, 1], [5]),
        ([1, -1, 2, -1], [-1, 2, -1], 0, [1, 3, 2, 4], [3, 2, 4]),
        ([1], [], 8, [4, 1], [4]),
        ([-1, 2], [2, -1], 8, [4, 3, 2], [4, 2, 3]),
    ],
)
@pytest.mark.row("E31")
def test_the_model_sees_another_shape_than_those_who_ask(
    dims: list[int], shape: list[int], batch: int, outer: list[int], seen: list[int]
) -> None:
    reshaping = Reshaping(config(dims, shape, batch))

    assert [tensor("X", seen), tensor("P", [1])] == reshaping.for_model(
        [tensor("X", outer), tensor("P", [1])]
    )
    assert [tensor("Y", outer), tensor("Q", [1])] == reshaping.for_client(
        [tensor("Y", seen), tensor("Q", [1])]
    )


@pytest.mark.parametrize("made", [[5], [6, 2], []])
@pytest.mark.row("E31")
def test_an_output_with_another_number_of_elements_is_an_error(made: list[int]) -> None:
    reshaping = Reshaping(config([2, 3], [6]))

    with pytest.raises(InternalError) as error:
        reshaping.for_client([tensor("Y", made)])

    assert "output tensor shape does not match size of output for 'Y'" == error.value.text


def test_an_output_with_too_few_dimensions_is_an_error() -> None:
    reshaping = Reshaping(config([1, -1, -1], [-1, -1]))

    with pytest.raises(InternalError):
        reshaping.for_client([tensor("Y", [4])])


def test_a_model_without_is_left_alone() -> None:
    plain = {"input": [{"name": "X", "dims": [1]}], "output": [{"name": "Y", "dims": [1]}]}

    assert not Reshaping(plain)
