"""Paths in texts for the holder of a token for some models."""

from __future__ import annotations

import pytest

from zmqtriton_floor.access.token_file import Grant
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_frontends.access.hidden_places import places_hidden, visible_entries, without_places

SOME = Grant("some", b"", frozenset(), ("m",))
ALL = Grant("all", b"", frozenset())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("At:\n  /a/b/m/1/model.py(3): initialize\n", "At:\n  m/1/model.py(3): initialize\n"),
        (
            "from /a/m/config.pbtxt\n/a/m/config.pbtxt:1:1: no",
            "from m/config.pbtxt\nm/config.pbtxt:1:1: no",
        ),
        ("not found in '/a/m/1/x.py' Did you", "not found in 'm/1/x.py' Did you"),
        ("/etc/secret.key is missing", "secret.key is missing"),
        ("(/a/m)", "(m)"),
        (
            "1/2 of https://host/a/b and b/c, input/output",
            "1/2 of https://host/a/b and b/c, input/output",
        ),
        ("a / b /", "a / b /"),
    ],
)
def test_paths_begin_at_the_model(text: str, shown: str) -> None:
    assert shown == without_places(text, "m")


def test_documents_are_searched() -> None:
    assert {"a": [1, "m/x", {"b": None}]} == without_places({"a": [1, "/r/m/x", {"b": None}]}, "m")


def test_entries_of_other_models_are_left_out() -> None:
    index = [{"name": "m", "reason": "/r/m/1"}, {"name": "n", "reason": "/r/n/1"}]

    assert [{"name": "m", "reason": "m/1"}] == visible_entries(index, SOME)
    assert index == visible_entries(index, ALL) == visible_entries(index, None)


@pytest.mark.parametrize(("grant", "text"), [(SOME, "m/1"), (ALL, "/r/m/1"), (None, "/r/m/1")])
def test_errors_are_shortened(grant: Grant | None, text: str) -> None:
    with pytest.raises(InvalidArgument) as error, places_hidden(grant, "m"):
        raise InvalidArgument("/r/m/1")

    assert text == error.value.text
