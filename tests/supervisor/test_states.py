from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from zmqtriton.supervisor import states
from zmqtriton.supervisor.states import GenerationState, InstanceState, LoadState, ModelState

TABLES = [
    (states.INSTANCE_TRANSITIONS, InstanceState, InstanceState.STOPPED),
    (states.GENERATION_TRANSITIONS, GenerationState, GenerationState.ENDED),
    (states.MODEL_TRANSITIONS, ModelState, ModelState.UNAVAILABLE),
]
LOADS = states.LOAD_TRANSITIONS


def reachable(table: Mapping[tuple[Any, Any], Any], start: Any) -> set[Any]:
    all_states = {start}
    while True:
        more = {after for (before, _), after in table.items() if before in all_states} - all_states
        if not more:
            return all_states
        all_states |= more


@pytest.mark.parametrize(("table", "kind", "end"), TABLES)
def test_every_state_leads_to_the_end(table: Any, kind: Any, end: Any) -> None:
    assert [] == [state for state in kind if end not in reachable(table, state)]


def test_every_state_of_an_instance_is_reached() -> None:
    all_states = reachable(states.INSTANCE_TRANSITIONS, InstanceState.STOPPED)

    assert set(InstanceState) == all_states


def test_every_state_of_a_load_is_reached_and_leads_to_an_end_by_itself() -> None:
    alone = {key: after for key, after in LOADS.items() if key[1] is not states.LoadCancelled}

    assert set(LoadState) == reachable(LOADS, LoadState.ASKED)
    assert [] == [
        state
        for state in set(LoadState) - states.LOAD_ENDS
        if not states.LOAD_ENDS & reachable(alone, state)
    ]


def test_a_load_that_has_not_ended_can_be_cancelled_and_one_that_has_stays_so() -> None:
    assert {state for state, event in LOADS if event is states.LoadCancelled} == (
        set(LoadState) - states.LOAD_ENDS
    )
    assert not {state for state, _ in LOADS} & states.LOAD_ENDS


def test_an_instance_can_be_stopped_in_every_state() -> None:
    stoppable = {s for s, event in states.INSTANCE_TRANSITIONS if event is states.StopRequested}

    assert set(InstanceState) == stoppable


def test_a_process_can_die_in_every_state_that_has_one() -> None:
    mortal = {s for s, event in states.INSTANCE_TRANSITIONS if event is states.ProcessExited}

    assert mortal == states.ALIVE_STATES


def test_what_is_not_in_the_table_is_an_error_that_names_it() -> None:
    with pytest.raises(states.TransitionError) as caught:
        states.next_state(
            states.INSTANCE_TRANSITIONS, InstanceState.STOPPED, states.ModelLoaded(), "instance 'x'"
        )

    assert str(caught.value) == "instance 'x': ModelLoaded in state STOPPED"
