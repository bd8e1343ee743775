from __future__ import annotations

from zmqtriton_floor import wire
from zmqtriton_frontends.gateway.unanswered import Unanswered


def row(own_id: int, flags: int = 0) -> wire.Request:
    return wire.Request(own_id, 1, "", -1, flags, 0, 0, 0, 0, 0, 0)


def sent(*ids: int) -> Unanswered:
    unanswered = Unanswered()
    unanswered.sent([row(i) for i in ids], [b"%d" % i for i in ids])
    return unanswered


def test_what_was_sent_and_not_answered_is_asked_again_in_order_and_marked() -> None:
    unanswered = sent(1, 2, 3)
    unanswered.answered(2)

    [(message, bodies)] = unanswered.again()

    assert message == wire.Infer([row(1, wire.RESENT), row(3, wire.RESENT)])
    assert bodies == [b"1", b"3"]


def test_other_flags_stay() -> None:
    unanswered = Unanswered()
    unanswered.sent([row(1, wire.SEQUENCE_START)], [b""])

    [(message, _)] = unanswered.again()

    assert message == wire.Infer([row(1, wire.SEQUENCE_START | wire.RESENT)])


def test_what_nobody_waits_for_is_cancelled_after_it_was_asked_again() -> None:
    unanswered = sent(1, 2)
    unanswered.cancelled(2)
    unanswered.cancelled(7)  # was never sent

    messages = [message for message, _ in unanswered.again()]

    assert [type(m) for m in messages] == [wire.Infer, wire.Cancel]
    assert messages[1] == wire.Cancel([2])


def test_what_was_cancelled_before_it_was_sent_is_so_for_the_next_broker_too() -> None:
    unanswered = sent()
    unanswered.cancelled(1)
    unanswered.sent([row(1)], [b"1"])

    messages = [message for message, _ in unanswered.again()]

    assert messages == [wire.Infer([row(1, wire.RESENT)]), wire.Cancel([1])]


def test_a_cancelled_one_that_is_answered_is_forgotten() -> None:
    unanswered = sent(1)
    unanswered.cancelled(1)
    unanswered.answered(1)

    assert list(unanswered.again()) == []
    assert len(unanswered) == 0


def test_what_no_broker_has_answered_is_asked_each_new_one() -> None:
    unanswered = sent(1)

    assert list(unanswered.again()) == list(unanswered.again())


def test_many_with_the_longest_names_fit_into_their_headers() -> None:
    unanswered = Unanswered()
    long = row(0)._replace(correlation="😀" * 1024, model="😀" * 1024)
    unanswered.sent([long._replace(id=i) for i in range(1000)], [b""] * 1000)

    messages = list(unanswered.again())

    assert sum(len(bodies) for _, bodies in messages) == 1000
    for message, _ in messages:
        assert wire.decode(wire.encode(message)) == message
