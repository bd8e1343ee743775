"""zmqtriton answers every case as real Triton did when it was recorded.

A case that differs on purpose stands in docs/recorded-differences.md, and its answer in
recorded/intended.json; one that differs because something is missing stands in pending.txt.
`make conformance-record` asks Triton anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import kinds, lists
from tests.conformance.cases import Case
from tests.conformance.newer_pythons import as_of_all
from tests.conformance.play import NO_ANSWER, Target
from tests.conformance.tables import REPOSITORIES, TABLES
from tests.conformance.zmqtriton_target import ours

pytestmark = pytest.mark.system

RECORDED = {name: answer for table in TABLES for name, answer in lists.recorded(table).items()}
INTENDED = lists.intended()
DIFFERING = frozenset(lists.differing())
PENDING = frozenset(lists.pending())
#: Repositories of one feature each, which has tests of its own in the first tier.
OF_ONE_FEATURE = (
    pytest.param(
        "configs",
        marks=pytest.mark.long(
            "config/test_model_config.py::test_a_python_model_looks_as_triton_prints_it",
            "config/test_model_config.py::test_a_models_own_completion_takes_over_what_it_may_decide",
            "config/test_model_config.py::test_an_override_stands_in_for_the_file_and_may_bear_another_name",
            "reading/test_model_reading.py::test_a_broken_configuration_is_a_reason",
        ),
    ),
    pytest.param(
        "configs_strict",
        marks=pytest.mark.long(
            "config/test_model_config.py::test_without_auto_completion_the_file_must_exist_and_be_complete",
            "config/test_model_config.py::test_without_auto_completion_the_configuration_is_finished_at_once",
        ),
    ),
    pytest.param(
        "loading",
        marks=pytest.mark.long(
            "system/loads/test_loads.py::test_models_are_loaded_and_unloaded_on_request",
            "system/loads/test_reloads.py::test_what_is_broken_changes_nothing_and_the_reason_says_where",
        ),
    ),
    pytest.param(
        "ensembles",
        marks=pytest.mark.long(
            "system/scheduling/test_pipelines.py::test_an_ensemble_answers_what_its_steps_have_made",
            "broker/ensembles/test_ensembles.py::test_the_first_error_ends_the_ensemble_in_its_name",
            "floor/test_tensors.py::test_what_does_not_fit_is_refused_with_its_reason",
        ),
    ),
    pytest.param(
        "ensembles_optional",
        marks=pytest.mark.long(
            "broker/ensembles/test_ensembles.py::test_an_optional_input_that_is_not_given_is_left_out",
            "floor/test_tensors.py::test_what_does_not_fit_is_refused_with_its_reason",
        ),
    ),
    pytest.param(
        "policies",
        marks=pytest.mark.long(
            "broker/scheduling/test_queue_policy.py::test_who_has_waited_too_long_is_refused_while_the_stub_is_still_busy",
            "broker/scheduling/test_queue_policy.py::test_one_more_than_may_wait_is_refused_with_the_id_that_its_client_gave",
        ),
    ),
    pytest.param(
        "sequences",
        marks=pytest.mark.long(
            "broker/sequences/test_sequences.py::test_a_request_of_no_sequence_is_refused",
            "broker/sequences/test_sequences.py::test_control_tensors_follow_what_a_request_brings",
            "broker/sequences/test_sequences.py::test_a_sequence_goes_on_where_it_began_until_it_ends",
        ),
    ),
    pytest.param(
        "raw",
        marks=pytest.mark.long(
            "frontends/http_api/server/test_odd_heads.py::test_an_odd_head_means_one_thing",
            "frontends/http_api/inference/test_binary.py::test_a_raw_body_is_the_one_input_and_all_outputs_are_binary",
        ),
    ),
    pytest.param(
        "statistics",
        marks=pytest.mark.long(
            "broker/ensembles/test_ensembles.py::test_statistics_count_the_ensemble_and_each_step",
            "broker/scheduling/test_queue_policy.py::test_statistics_count_who_was_refused_in_the_queue",
        ),
    ),
)
#: All others, and those.
CASES = (
    *(name for name in REPOSITORIES if name not in {case.values[0] for case in OF_ONE_FEATURE}),
    *OF_ONE_FEATURE,
)


@pytest.fixture(scope="module")
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """The server over a repository."""
    directory: Path = tmp_path_factory.mktemp(f"conformance_{request.param}")
    with ours(REPOSITORIES[request.param], directory) as target:
        yield target


# A test for each repository, not for each case or table: the server is started once, and what is
# looked for after each test costs more than all cases of a table.
@pytest.mark.parametrize("target", CASES, indirect=True)
def test_the_answers_are_tritons(target: Target, request: pytest.FixtureRequest) -> None:
    repository = request.node.callspec.params["target"]
    tables = [table for table in TABLES.values() if table.REPOSITORY == repository]

    complaints = [played(target, case) for table in tables for case in table.CASES]

    assert [] == [text for text in complaints if text]


def played(target: Target, case: Case) -> str:
    """Return what is wrong, each time."""
    text = complaint(case, target.play(case))
    for _ in range(4 if case.is_timed else 0):
        text = text and complaint(case, target.play(case))
    return text


def complaint(case: Case, answers: list[Any]) -> str:
    """Return what is wrong with the answers to a case; nothing if they are as they should be."""
    if kinds.KIND and case.name in kinds.LEFT_OUT:
        return ""
    answer, triton = written(answers), written(RECORDED[case.name])
    # To hang or to die is never the right answer, whoever else does.
    is_tritons = triton == answer and NO_ANSWER not in answer
    if is_tritons and case.name in DIFFERING:
        return f"{case.name}: take it out of docs/recorded-differences.md, it no longer differs"
    if is_tritons and case.name in PENDING:
        return f"{case.name}: take it out of pending.txt, it no longer differs"
    if is_tritons or case.name in PENDING:
        return ""
    expected = written(INTENDED[case.name]) if case.name in DIFFERING else triton
    if expected == answer and NO_ANSWER not in answer:
        return ""
    return f"{case.name}: expected {expected}, got {answer}"


def written(answers: Any) -> str:
    """As text, which tells 1 from 1.0 and one order of keys from another."""
    return kinds.as_of_processes(as_of_all(json.dumps(answers, ensure_ascii=False)))
