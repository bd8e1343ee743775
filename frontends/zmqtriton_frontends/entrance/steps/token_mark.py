"""Marks each request with the token of its client, by whose limits the broker admits it."""

from __future__ import annotations

from zmqtriton_frontends.entrance.ask import Ask
from zmqtriton_frontends.gateway.token_marks import TokenMarks
from zmqtriton_frontends.inference.admission import CheckedRequest


class TokenMark:
    def __init__(self, marks: TokenMarks) -> None:
        self._marks = marks

    def __call__(self, ask: Ask, checked: CheckedRequest) -> CheckedRequest:
        return checked if ask.grant is None else self._marks.mark(checked, ask.grant)
