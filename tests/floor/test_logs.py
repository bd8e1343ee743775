"""One record is one line, whatever it says."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zmqtriton_floor import logs


@pytest.fixture
def root_handlers() -> Iterator[None]:
    """Give the root logger its handlers and its level back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.mark.row("I01")
def test_a_line_has_tritons_form() -> None:
    line = logs.line("I", (42, "core.py", 7), "loading: m:1", 1_700_000_000.25)

    assert re.fullmatch(r'I\d{4} \d\d:\d\d:\d\d\.250000 42 core\.py:7\] "loading: m:1"', line)


@pytest.mark.row("I02")
def test_the_iso_form_is_in_universal_time() -> None:
    line = logs.line("W", (42, "core.py", 7), "x", 1_700_000_000.25, "ISO8601")

    assert '2023-11-14T22:13:20Z W 42 core.py:7] "x"' == line


@pytest.mark.parametrize(
    ("value", "shown"),
    [("", '"two\\nlines"'), ("0", "two\nlines"), ("FALSE", "two\nlines"), ("1", '"two\\nlines"')],
)
def test_tritons_variable_has_texts_as_they_are(
    monkeypatch: pytest.MonkeyPatch, value: str, shown: str
) -> None:
    monkeypatch.setenv("TRITON_SERVER_ESCAPE_LOG_MESSAGES", value)
    record = logging.LogRecord("x", logging.INFO, "core.py", 7, "two\nlines", None, None)

    assert logs.Formatter().format(record).endswith(f"core.py:7] {shown}")


def test_the_json_form_is_json() -> None:
    record = json.loads(logs.line("E", (42, "core.py", 7), 'a "b"\n', 1_700_000_000.25, "json"))

    assert ("E", 42, "core.py:7", 'a "b"\n') == tuple(
        record[k] for k in ("level", "pid", "at", "text")
    )
    assert "2023-11-14T22:13:20.250000Z" == record["time"]


@pytest.mark.row("L21")
@pytest.mark.parametrize(
    ("ids", "beginning", "fields"),
    [
        (["r-7"], "[request id: r-7] ", {"request_id": "r-7"}),
        (["r-7", "", "r-7"], "[request id: r-7] ", {"request_id": "r-7"}),
        (["a", "b"], "[request ids: a, b] ", {"request_ids": ["a", "b"]}),
        (["", ""], "", {}),
        ([], "", {}),
    ],
)
def test_a_line_names_its_requests_and_json_has_their_ids_apart(
    ids: list[str], beginning: str, fields: dict[str, Any]
) -> None:
    text = logs.name_requests(ids) + "step 1 of 2"

    record = json.loads(logs.line("I", (42, "model.py", 7), text, 1_700_000_000.0, "json"))

    assert f"{beginning}step 1 of 2" == text
    assert {"text": "step 1 of 2", **fields} == {
        key: value for key, value in record.items() if key.startswith(("text", "request"))
    }


def test_a_request_without_an_id_has_none_in_json() -> None:
    text = "[request id: <id_unknown>] Setting state from INITIALIZED to PENDING"

    record = json.loads(logs.line("V", (42, "core.py", 7), text, 1_700_000_000.0, "json"))

    assert text == record["text"]
    assert "request_id" not in record


def test_an_id_does_not_end_the_line() -> None:
    assert "[request id: a  E1122 forged  x] " == logs.name_requests(
        ["a\r\nE1122 forged\x85\u2028x"]
    )


def test_a_line_about_a_large_batch_has_an_end() -> None:
    text = logs.name_requests([f"{number:03}{'x' * 300}" for number in range(100)])

    assert 32 == text.count(",") + 1
    assert len(text) < 5_000


def test_a_flood_of_one_kind_is_cut_and_counted() -> None:
    written, now = io.StringIO(), [5.0]
    handler = logs.LimitedLog(written, clock=lambda: now[0])
    handler.setFormatter(logs.Formatter())

    def say(text: str, line: int, **more: Any) -> None:
        record = logging.LogRecord("x", logging.WARNING, "f.py", line, text, None, None)
        record.__dict__.update(more)
        handler.handle(record)

    def lines() -> list[str]:
        texts = [line.partition("] ")[2] for line in written.getvalue().splitlines()]
        written.seek(0)
        written.truncate()
        return texts

    for _ in range(logs.MAX_LINES_A_SECOND + 7):
        say("flood", 1)
    say("else", 2)
    say("a model's", 1, origin=(1, "model.py", 3))
    assert ['"flood"'] * logs.MAX_LINES_A_SECOND + ['"else"', '"a model\'s"'] == lines()

    now[0] += 1
    say("else", 2)
    say("flood", 1)
    assert ['"left out 7 more lines like those before"', '"else"', '"flood"'] == lines()

    for _ in range(logs.MAX_LINES_A_SECOND):
        say("flood", 1)
    handler.close()
    assert '"left out 1 more lines like those before"' == lines()[-1]


@pytest.mark.slow
def test_letters_that_show_nothing_or_turn_others_around_are_escaped() -> None:
    kinds = {"Cc", "Cf", "Zl", "Zp"}
    hidden = [c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) in kinds]
    assert "\u202e" in hidden

    for letter in hidden:
        quoted = logs.quote(f"a{letter}b")
        assert not kinds & set(map(unicodedata.category, quoted)), quoted
        assert f"a{letter}b" == json.loads(quoted)
    assert '"caf\u00e9 \U0001f600 \u4f60"' == logs.quote("caf\u00e9 \U0001f600 \u4f60")
    assert '"\\ud83d"' == logs.quote("\ud83d")


def test_no_text_can_make_a_second_line_or_move_a_terminal() -> None:
    evil = "a\nI0101 00:00:00.000000 1 x.py:1] forged\r\x1b[2J\x85\u2028\x9b\x7f"

    for form in logs.FORMS:
        line = logs.line("I", (1, "x.py", 1), evil, 0.0, form)
        assert [line] == line.splitlines()
        assert not re.search(r"[\x00-\x1f\x7f-\x9f]", line)


@pytest.mark.row("I01")
@pytest.mark.usefixtures("root_handlers")
def test_a_record_may_tell_another_origin_and_raw_text() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream)

    more = {"origin": (9, "model.py", 3), "raw": "+--+\n|  |"}
    logging.getLogger("x").info("hi %d", 5, extra=more)
    logging.getLogger("x").debug("not shown")

    first, *rest = stream.getvalue().splitlines()
    assert first.endswith(' 9 model.py:3] "hi 5"')
    # As in Triton an empty line follows what is not quoted.
    assert ["+--+", "|  |", ""] == rest


@pytest.mark.row("I01")
def test_a_table_follows_a_line_without_text_and_verbose_lines_say_i() -> None:
    record = logging.LogRecord("x", logging.INFO, "/a/server.cc", 604, "", None, None)
    record.raw = "+--+"
    formatter = logs.Formatter()

    assert re.fullmatch(r"I\S+ \S+ \d+ server\.cc:604\] \n\+--\+\n", formatter.format(record))
    verbose = logging.LogRecord("x", logging.DEBUG, "/a/b.py", 1, "told", None, None)
    assert re.fullmatch(r'I\S+ \S+ \d+ b\.py:1\] "told"', formatter.format(verbose))
    formatter.form = "json"
    assert "+--+" == json.loads(formatter.format(record))["text"]


@pytest.mark.parametrize(("value", "heading"), [("1", '"config: "'), ("0", "config: ")])
def test_tritons_variable_has_headings_as_they_are(
    monkeypatch: pytest.MonkeyPatch, value: str, heading: str
) -> None:
    monkeypatch.setenv("TRITON_SERVER_ESCAPE_LOG_MESSAGES", value)
    record = logging.LogRecord("x", logging.INFO, "core.py", 7, "config: ", None, None)
    record.raw = 'name: "m"'

    assert logs.Formatter().format(record).endswith(f'core.py:7] {heading}\nname: "m"\n')


def test_a_traceback_has_lines_that_are_no_heads() -> None:
    text = (
        "it fails: Traceback (most recent call last):\n  File \"m.py\"\nKeyError: '\x1b'\nI1120 x\n"
    )
    record = logging.LogRecord("x", logging.ERROR, "/a/b.py", 1, text, None, None)
    formatter = logs.Formatter()

    shown = formatter.format(record).split("\n")

    assert shown[0].endswith('b.py:1] "it fails: Traceback (most recent call last):"')
    assert ['      File "m.py"', "    KeyError: '\\u001b'", "    I1120 x"] == shown[1:]
    formatter.form = "json"
    assert text == json.loads(formatter.format(record))["text"]


def test_on_a_terminal_a_traceback_has_lines_that_are_no_heads() -> None:
    text = "it fails: Traceback:\n  File \"m.py\", line 1\nKeyError: '\x1b[1m\u202e'\n"
    record = logging.LogRecord("x", logging.ERROR, "/a/b.py", 1, text, None, None)

    shown = logs.Formatter(is_terminal=True).format(record).split("\n")

    assert shown[0].endswith('b.py:1] "it fails: Traceback:"')
    assert ['      File "m.py", line 1', "    KeyError: '\\u001b[1m\\u202e'"] == shown[1:]
    assert logs.Formatter().format(record).endswith(logs.quote(text))
    record.msg = "one line"
    assert logs.Formatter(is_terminal=True).format(record).endswith('b.py:1] "one line"')


@pytest.mark.row("I17")
@pytest.mark.usefixtures("root_handlers")
def test_journald_gets_one_record_for_each_line_with_its_priority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "journal").open("w+") as stream:
        status = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        logs.configure(logs.LogOptions(verbose=1), stream)
        for level in (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG):
            logging.getLogger("x").log(level, "a\nb")
        logging.getLogger("x").info("", extra={"raw": "+--+\n|  |"})
        stream.seek(0)
        lines = stream.read().splitlines()

    assert ["<3>E", "<4>W", "<6>I", "<7>I", "<6>I", "<6>+", "<6>|"] == [line[:4] for line in lines]
    assert lines[0].endswith('] "a\\nb"')


@pytest.mark.usefixtures("root_handlers")
def test_a_stream_tells_of_lost_lines_in_the_form_of_the_log() -> None:
    stream = logs.PipeStream(2)
    logs.configure(logs.LogOptions("ISO8601"), stream)

    assert re.fullmatch(r'\d{4}-\S+Z W \d+ \S+:\d+\] "2 are lost"', stream.form("2 are lost"))


@pytest.mark.usefixtures("root_handlers")
def test_what_is_not_wanted_is_not_written_and_that_may_change() -> None:
    stream = io.StringIO()
    logs.configure(logs.LogOptions(info=False, error=False), stream)
    _say_all("first")

    logs.change(logs.LogOptions("ISO8601", 1, warning=False))
    _say_all("second")

    written = [
        line.split("]")[0][0] + line.split("]")[1] for line in stream.getvalue().split("\n")[:-1]
    ]
    assert ['W "first"', '2 "second"', '2 "second"', '2 "second"'] == written


def _say_all(text: str) -> None:
    log = logging.getLogger("x")
    for say in (log.debug, log.info, log.warning, log.error):
        say(text)


def test_json_has_what_a_line_is_about_and_other_forms_do_not() -> None:
    first, second = (f"00-{digit * 32}-{digit * 16}-01" for digit in "ab")
    about = logs.subject("m", 3, "m_0_0", first)
    record = logging.makeLogRecord({"msg": "[request id: r1] x", "about": about})
    formatter = logs.Formatter()

    plain = formatter.format(record)
    formatter.form = "json"
    document = json.loads(formatter.format(record))

    assert plain.endswith('"[request id: r1] x"')
    assert ("m", 3, "m_0_0", "r1", "x") == tuple(
        document[key] for key in ("model", "version", "instance", "request_id", "text")
    )
    assert ("a" * 32, "a" * 16) == (document["trace_id"], document["span_id"])
    several = logs.subject("m", traces=f"{first} {second}")
    assert ({"model": "m", "traceparents": [first, second]}, {}) == (several, logs.subject(""))
