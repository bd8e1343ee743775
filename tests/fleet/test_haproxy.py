"""HAProxy as the fleet finds it."""

from __future__ import annotations

import pytest

from zmqtriton.fleet import haproxy
from zmqtriton_floor.errors import NotFound


def test_where_there_is_none_a_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(haproxy, "_PLACES", "/nowhere")

    with pytest.raises(NotFound, match="apt install haproxy"):
        haproxy.find_program()
