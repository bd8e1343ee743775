"""Reasons as a test writes them: the text, from which those of a process's end get their kind."""

from __future__ import annotations

from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.reasons import Kind, Reason

_EXITED, _KILLED = "exited with status ", "killed by "


def because(text: str) -> Reason:
    """Return the reason with this text."""
    if text.startswith(_EXITED):
        return Reason.of(Kind.EXITED, text, status=int(text[len(_EXITED) :]))
    if text.startswith(_KILLED):
        return Reason.of(Kind.KILLED, text, signal=text[len(_KILLED) :])
    return Reason.of(Kind.OTHER, text)


def text_of(why: Reason | ZmqTritonError | None) -> str:
    """Return the text of a reason or a problem; "" if there is none."""
    return "" if why is None else why.text
