"""Names of spans: W3C's traceparent, and the tracestate behind it."""

from __future__ import annotations

import threading
from pathlib import Path

import zmq

from zmqtriton_floor import endpoints, spans, wire
from zmqtriton_floor.process import zmq_sockets

_TRACE = "0af7651916cd43dd8448eb211c80319c"
_NAME = f"00-{_TRACE}-b7ad6b7169203331-01"


def test_a_name_has_its_state_behind_it_and_hands_it_down() -> None:
    context = spans.named(f"cc-{_TRACE}-b7ad6b7169203331-00-more", "a=b,c=d")

    assert (f"00-{_TRACE}-b7ad6b7169203331-00", "a=b,c=d") == spans.parts(context)
    for name in (spans.among(context), spans.below(context, 3, 4)):
        traceparent, state = spans.parts(name)
        assert (_TRACE, "-01", "a=b,c=d") == (traceparent[3:35], traceparent[-3:], state)
        assert spans.span_of(name) != spans.span_of(context)
    assert (_NAME, "") == spans.parts(spans.named(_NAME))


def test_spans_below_others_are_the_same_for_all_and_no_two_are_one() -> None:
    first, second = _NAME, spans.below(_NAME, 1, 1)
    pairs = [(peer, number) for peer in range(20) for number in range(50)]

    names = {spans.below(above, *pair) for above in (first, second) for pair in pairs}

    assert 2 * len(pairs) == len(names)
    assert second == spans.below(_NAME, 1, 1)
    assert 55 == len(second)


def test_a_new_trace_has_ids_of_its_own() -> None:
    first, second = spans.new(), spans.new()

    assert 55 == len(first)
    assert first[3:35] != second[3:35]


def test_what_was_sent_before_the_end_arrives_though_nobody_listened_yet(tmp_path: Path) -> None:
    sender = spans.Sender(str(tmp_path))
    sender.send(_NAME, {"model": "m"})
    closing = threading.Thread(target=sender.close)
    closing.start()

    context = zmq.Context()
    puller = zmq_sockets.open_puller(context, endpoints.spans_address(str(tmp_path)), 10)
    (frame,) = zmq_sockets.receive(puller) if puller.poll(30_000) else [b""]
    closing.join(30)
    puller.close()
    context.term()

    assert wire.Span(_NAME, '{"model": "m"}') == wire.decode(frame)
    sender.send(_NAME, {})  # nobody minds
