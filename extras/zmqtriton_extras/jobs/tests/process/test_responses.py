"""Pages of the events of an answer."""

from __future__ import annotations

import pytest

from zmqtriton_extras.jobs.process import responses
from zmqtriton_extras.jobs.process.responses import Page, read_page

STREAM = b'data: {"a":1}\n\n: a comment\n\ndata: {"b":\ndata: 2}\n\ndata: [DONE]\n\n'


def _read(data: bytes, after: int = 0, *, is_over: bool = False) -> Page:
    return read_page(lambda begin, size: data[begin : begin + size], after, is_over)


@pytest.mark.parametrize("end", range(len(STREAM) + 1))
def test_whatever_there_is_of_a_stream_each_event_is_read_once_and_whole(end: int) -> None:
    first = _read(STREAM[:end])
    second = _read(STREAM, first.next, is_over=True)

    assert first.responses + second.responses == [b'{"a":1}', b'{"b":\n2}']
    assert Page([], len(STREAM)) == _read(STREAM, second.next, is_over=True)


def test_what_stands_behind_the_last_empty_line_is_an_event_once_it_is_over() -> None:
    data = b'data: {"a":1}\n\ndata: {"b":2}'

    assert Page([b'{"a":1}'], 15) == _read(data)
    assert Page([b'{"a":1}', b'{"b":2}'], len(data)) == _read(data, is_over=True)


def test_a_long_stream_has_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "PAGE_BYTES", 64)
    events = [b'{"n":%d}' % number for number in range(100)]
    data = b"".join(b"data: %b\n\n" % event for event in events)

    events_read, after, pages = list[bytes](), 0, 0
    while (page := _read(data, after, is_over=True)).responses:
        events_read, after, pages = events_read + page.responses, page.next, pages + 1

    assert events == events_read
    assert pages > 20


def test_an_event_may_be_larger_than_a_page_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "PAGE_BYTES", 64)
    monkeypatch.setattr(responses, "MAX_EVENT_BYTES", 4096)
    data = b'data: {"a":"%b"}\n\n'

    assert len(_read(data % (b"x" * 1000)).responses) == 1
    with pytest.raises(ValueError, match="at most 4096 bytes"):
        _read(data % (b"x" * 40_000))


@pytest.mark.parametrize("after", [3, 1000, 1 << 62])
def test_a_place_that_nobody_was_told_is_no_error(after: int) -> None:
    assert _read(STREAM, after, is_over=True).next >= after
