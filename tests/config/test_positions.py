"""Positions in a config.pbtxt, and their place in an error's text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zmqtriton.config.errors import ConfigError, FieldPath, Problem
from zmqtriton.config.names import unknown_name_problems
from zmqtriton.config.positions import PositionIndex, locate, locate_error

TEXT = """# of a model
name: "m"
input [
  { name: "A" dims: [ 1, 2 ] },
  { name: "B"
    dims: [ 0 ] }
]
input { name: 'C' }
dynamic_batching <
  priority_queue_policy { key: 1 value { max_queue_size: 2 } }
  priority_queue_policy: { key: 3, value: { max_queue_size: 2 } };
>
parameters [ { key: "a" value { string_value: "x # no comment" } } ]
"""


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (("name",), (2, 7)),
        (("input", 0), (4, 3)),
        (("input", 0, "dims", 1), (4, 26)),
        (("input", 1, "dims"), (6, 13)),
        (("input", 2), (8, 1)),
        (("input", 2, "data_type"), (8, 1)),
        (("dynamic_batching", "priority_queue_policy", "3"), (11, 3)),
        (("dynamic_batching", "priority_queue_policy", "3", "timeout_action"), (11, 3)),
        (("parameters", "a"), (13, 14)),
        (("input", 3), None),
        (("output", 0), None),
    ],
)
def test_a_field_stands_where_it_is_written_or_where_it_would_belong(
    field: FieldPath, expected: tuple[int, int] | None
) -> None:
    place = PositionIndex(TEXT).find(field)

    assert expected == (place and place[:2])


def test_every_unknown_name_is_found_with_what_was_meant() -> None:
    text = 'nam: "m"\ninput { data_type: TYPE_F32 dim: [ 1 ] x { y: 1 } }\nmax_batch_size: 1\n'

    problems = list(unknown_name_problems(PositionIndex(text), "c"))

    assert [
        ("nam", 1, 1, "name"),
        ("TYPE_F32", 2, 20, "TYPE_FP32"),
        ("dim", 2, 29, "dims"),
        ("x", 2, 40, ""),
    ] == [(_last_name(p), p.line, p.column, p.suggestion) for p in problems]


def _last_name(problem: Problem) -> str:
    return problem.detail.rstrip(".").split(" ")[-1].strip('"')


def test_a_reason_begins_with_tritons_words(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_text(TEXT)
    problem = Problem("model input 'B' is wrong for m", ("input", 1, "dims"), suggestion="A")

    error = locate_error(ConfigError(problem), path)

    expected = f"model input 'B' is wrong for m (at {path}:6) Did you mean 'A'?"
    assert expected == error.text
    assert (6, 13) == (error.problem.line, error.problem.column)


def test_what_stands_nowhere_in_the_file_names_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_text(TEXT)

    somewhere = locate(Problem("no platform", ("platform",)), path)
    of_no_field = locate(Problem("no such backend"), path)
    of_no_file = locate(Problem("no name", ("name",)), None)

    assert [f"no platform (in {path})", "no such backend", "no name"] == [
        str(somewhere),
        str(of_no_field),
        str(of_no_file),
    ]


@settings(max_examples=200)
@given(st.text(alphabet="{}[]<>:\"'\\,-.#\n abinputdims09;", max_size=80))
def test_any_text_has_positions(text: str) -> None:
    positions = PositionIndex(text)

    assert all(1 <= named.position.line <= text.count("\n") + 1 for named in positions.fields)
