"""The parts of the fuzzer that decide what is wrong, without a server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.faults.programs import drawing
from tests.faults.programs.__main__ import FEATURES
from tests.faults.programs.clients import fault_of
from tests.faults.programs.drawing import Program
from tests.faults.programs.oracle import Oracle, arrays

_CALLS = 100


def _answers(steps: list[list[Any]], *inputs: Any) -> list[list[Any]]:
    return Oracle([Program("p0", steps=steps)]).answers("p0", [*inputs])


def test_an_element_names_its_call_input_and_place() -> None:
    array = arrays.ramp(7, 1, 50)
    arrays.mark(array, 5)

    assert (7, 1, 49, 5) == arrays.origin_of(int(array[49]))


@pytest.mark.parametrize(
    ("actual", "words"),
    [
        (arrays.ramp(8, 0, 50), "50 of 50 elements, from 0 to 49: element 0 is element 0 of "),
        (2 * arrays.ramp(7, 0, 50), "is element 0 of input 0 of call 14; expected"),
        (np.zeros(50, np.uint64), "element 0 is zero; expected is element 0 of input 0 of call 7"),
        (arrays.ramp(7, 0, 49), "(49,) elements instead of (50,)"),
    ],
)
def test_a_difference_says_whose_the_content_is(actual: Any, words: str) -> None:
    assert words in arrays.difference(arrays.ramp(7, 0, 50), actual, _CALLS)


def test_a_view_sees_a_change_and_a_copy_and_the_callers_input_do_not() -> None:
    sent = arrays.ramp(7, 0, 64)
    steps: list[list[Any]] = [["slice", "a", "i0", 8, 16, 1], ["copy", "b", "i0"], ["mark", "a", 1]]

    [[whole, copy]] = _answers([*steps, ["send", ["i0", "b"]]], sent)

    assert not np.array_equal(whole[32:], sent[32:])
    assert np.array_equal(whole[:32], sent[:32])
    assert np.array_equal(copy, sent)
    assert np.array_equal(sent, arrays.ramp(7, 0, 64))


def test_responses_of_an_ensemble_have_no_order_and_others_have() -> None:
    one, other = arrays.ramp(1, 0, 4), arrays.ramp(2, 0, 4)

    assert "" == fault_of(Program("p0", "ensemble"), [[one], [other]], [[other], [one]], _CALLS)
    assert "of call 2" in fault_of(Program("p0"), [[one], [other]], [[other], [one]], _CALLS)
    assert "1 responses" in fault_of(Program("p0", "ensemble"), [[one], [other]], [[one]], _CALLS)


def test_a_seed_draws_the_same_programs_each_time_and_the_oracle_knows_them() -> None:
    for seed in range(20):
        programs = drawing.draw(str(seed), FEATURES, 8)
        oracle = Oracle(programs)

        assert programs == drawing.draw(str(seed), FEATURES, 8)
        for program in programs:
            inputs = [arrays.ramp(1, n, program.state or 256) for n in range(program.inputs)]
            responses, _ = oracle.step(program.name, inputs, np.zeros(program.state, np.uint64))
            assert [program.outputs] * program.responses == [len(one) for one in responses]
