"""Lines of the log as records, and the thread that delivers them."""

from __future__ import annotations

import io

import pytest

from zmqtriton_extras.tritonserver.api import LogLevel
from zmqtriton_extras.tritonserver.log_records import Record, deliver, parse
from zmqtriton_floor.logs import line

NOW_S = 1_790_000_000.25


@pytest.mark.parametrize(
    ("letter", "level"),
    [
        ("V", LogLevel.VERBOSE),
        ("I", LogLevel.INFO),
        ("W", LogLevel.WARN),
        ("E", LogLevel.ERROR),
    ],
)
@pytest.mark.parametrize(
    "text",
    [
        "loading: m:1",
        'two\nlines, "quoted" ü',
        "[request id: a b] failed",
        "[request ids: a, b] failed",
        "[request id: <id_unknown>] failed",
    ],
)
def test_a_line_has_all_of_its_record(letter: str, level: LogLevel, text: str) -> None:
    written = line(letter, (7, "model.py", 42), text, NOW_S, "json")

    assert (level, "model.py", 42, 1_790_000_000_250_000, text) == parse(written)


@pytest.mark.parametrize("other", ["Traceback", "{}", "[1]", "", '{"time": 1}', "null"])
def test_another_line_is_no_record(other: str) -> None:
    assert parse(other) is None


def test_an_error_of_the_callback_loses_no_later_record(
    capsys: pytest.CaptureFixture[str],
) -> None:
    records: list[Record] = []

    def callback(*record: object) -> None:
        records.append(record)  # type: ignore[arg-type]
        if len(records) == 1:
            raise ValueError("on purpose")

    lines = [line("I", (1, "a.py", number), "text", NOW_S, "json") for number in range(3)]
    deliver(io.StringIO("\n".join([lines[0], "of another", *lines[1:]])), callback)

    assert [record[2] for record in records] == [0, 1, 2]
    printed = capsys.readouterr().err
    assert "of another\n" in printed
    assert "ValueError: on purpose" in printed
