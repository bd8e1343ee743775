"""The findings of one model's loads, and their results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.supervisor.world import make_blueprint
from zmqtriton.supervisor.actions import LoadOverride
from zmqtriton.supervisor.models.blueprint import Blueprint, ReadFailure, Scale
from zmqtriton.supervisor.models.load_history import LoadHistory
from zmqtriton.supervisor.models.version import ModelVersion
from zmqtriton.supervisor.states import ModelState
from zmqtriton_floor.reasons import Kind, Reason

BLUEPRINT = make_blueprint("m", "1", versions=(1, 2))
OTHER = make_blueprint("m", "2", versions=(1, 2))
OVERRIDE = LoadOverride(config='{"max_batch_size": 3}')
ANY_GENERATION: Any = object()


def _versions(*serving: int) -> dict[int, ModelVersion]:
    versions = {number: ModelVersion("m", number) for number in (1, 2)}
    for number in serving:
        versions[number].state = ModelState.READY
        versions[number].generation = ANY_GENERATION
    return versions


def _loaded(blueprint: Blueprint = BLUEPRINT, override: LoadOverride | None = None) -> LoadHistory:
    history = LoadHistory()
    history.record_attempt(blueprint, override)
    history.record_loaded(blueprint)
    return history


def test_a_model_is_current_if_these_files_serve_in_all_versions() -> None:
    history = _loaded()

    assert history.is_current(BLUEPRINT, None, _versions(1, 2))
    assert not history.is_current(BLUEPRINT, None, _versions(1))
    assert not history.is_current(BLUEPRINT, None, {})
    assert not history.is_current(OTHER, None, _versions(1, 2))
    assert not history.is_current(BLUEPRINT, OVERRIDE, _versions(1, 2))
    assert not _loaded(override=OVERRIDE).is_current(BLUEPRINT, None, _versions(1, 2))
    nothing = make_blueprint("m", "3", versions=())
    assert not _loaded(nothing).is_current(nothing, None, {})


def test_after_an_unload_nothing_is_current_and_no_scale_holds() -> None:
    history = _loaded()
    history.record_scale(Scale(3), BLUEPRINT)

    history.record_unloaded()

    assert not history.is_current(BLUEPRINT, None, _versions(1, 2))
    assert history.scale is None
    assert history.was_attempted("1")


def test_a_model_that_was_unloaded_has_no_problem_any_more() -> None:
    history = LoadHistory()
    history.record_read_failure(ReadFailure(Reason.of(Kind.OTHER, "no such setting"), "7"))

    history.record_unloaded()

    assert history.read_problem is None


def test_an_attempt_is_of_files_or_of_what_came_with_it() -> None:
    assert not LoadHistory().is_from_files
    assert _loaded().is_from_files
    assert not _loaded(override=OVERRIDE).is_from_files
    history = _loaded()

    history.record_gone()

    assert (True, False, False) == (
        history.is_directory_gone,
        history.is_from_files,
        history.was_attempted("1"),
    )


def test_files_are_tried_again_three_times_if_each_time_a_process_was_lost() -> None:
    history, tried = LoadHistory(), []
    for _ in range(5):
        history.record_attempt(BLUEPRINT, None)
        assert history.was_attempted("1")
        history.record_lost_process()
        history.record_lost_process()  # another one of the same attempt
        tried.append(history.was_attempted("1"))

    assert [False, False, False, True, True] == tried


def test_other_files_and_a_success_begin_the_count_anew() -> None:
    history = LoadHistory()
    for _ in range(4):
        history.record_attempt(BLUEPRINT, None)
        history.record_lost_process()
    assert history.was_attempted("1")

    history.record_attempt(OTHER, None)
    history.record_lost_process()
    assert not history.was_attempted("2")

    for _ in range(3):
        history.record_attempt(OTHER, None)
        history.record_lost_process()
    assert history.was_attempted("2")
    history.record_loaded(OTHER)
    history.record_attempt(OTHER, None)
    history.record_lost_process()
    assert not history.was_attempted("2")


def test_what_cannot_be_read_is_told_until_something_can() -> None:
    history, why = LoadHistory(), Reason.of(Kind.OTHER, "no such model")

    history.record_read_failure(ReadFailure(why, "7"))
    assert (why, False) == (history.read_problem, history.is_directory_gone)
    assert history.was_attempted("7")

    history.record_read_failure(ReadFailure(why))
    assert history.is_directory_gone

    history.record_attempt(make_blueprint("m", versions=()), None)
    assert (None, False, True) == (
        history.read_problem,
        history.is_directory_gone,
        history.has_no_version,
    )
    history.record_read_failure(ReadFailure(why, "7"))
    history.record_unchanged(BLUEPRINT)
    assert (None, True) == (history.read_problem, history.was_attempted("1"))


def test_a_number_of_instances_holds_until_other_groups_are_configured() -> None:
    scaled = replace(BLUEPRINT, fingerprint="scaled")
    configured = replace(BLUEPRINT, configured_groups="a", scaled=lambda scale: scaled)
    history = LoadHistory()
    assert configured is history.keep_scale(configured)

    history.record_scale(Scale(3), configured)
    assert scaled is history.keep_scale(configured)

    changed = replace(configured, configured_groups="b")
    assert changed is history.keep_scale(changed)
    assert history.scale is None
    assert configured is history.keep_scale(configured)
