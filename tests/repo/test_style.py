"""The counts of the style sheet: they may only fall."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import style_sheet
from tools.style_sheet import COMMENT, DOCSTRING, PAGE, RULES, TEXT, Text

#: So far below its limit a count may be; beyond that the limit is lowered.
SLACK = 10
#: The number of places by rule and room.
LIMITS = {
    "1 a comment begins with a noun": {},
    "2 a number has a name and a unit": {},
    "3 a pronoun is no head": {},
    "3 a pronoun is no object": {
        "zmqtriton/supervisor": 12,
        "stub": 6,
        "frontends": 1,
        "standard": 3,
        "extras": 12,
    },
    "4 return a noun": {},
    "5 name who acts": {
        "docs": 4,
        "CONTRIBUTING.md": 1,
    },
    "6 words of today": {
        "zmqtriton/broker": 5,
        "zmqtriton/supervisor": 3,
        "zmqtriton": 20,
        "stub": 7,
        "frontends": 12,
        "standard": 2,
        "extras": 8,
    },
    "7 files are somewhere, services continue": {
        "zmqtriton/broker": 2,
        "zmqtriton/supervisor": 11,
        "zmqtriton": 34,
        "stub": 19,
        "frontends": 27,
        "standard": 1,
        "extras": 31,
    },
    "8 facts are logged, reported, sent": {},
    "9 no preposition before which": {
        "zmqtriton/supervisor": 2,
        "stub": 3,
        "standard": 1,
        "docs": 1,
    },
    "10 a last clause names its noun": {
        "zmqtriton/broker": 6,
        "zmqtriton/supervisor": 12,
        "zmqtriton": 25,
        "stub": 21,
        "frontends": 11,
        "standard": 10,
        "extras": 31,
    },
    "13 no sentence runs through code": {},
    "14 a table has a head": {},
    "18 a heading names its content": {
        "README.md": 1,
        "docs": 1,
    },
    "20 an error says what to do": {
        "standard": 3,
        "extras": 3,
    },
}


def test_the_places_become_fewer() -> None:
    counted = style_sheet.counts()
    rooms = [(rule, room) for rule in RULES for room in {*LIMITS[rule], *counted[rule]}]

    assert [] == [
        f"{rule}, {room}: {count} places for {limit} (python -m tools.style_sheet "
        f"{rule.partition(' ')[0]}); {'rewrite some' if count > limit else 'lower the limit'}"
        for rule, room in rooms
        for count, limit in [(counted[rule].get(room, 0), LIMITS[rule].get(room, 0))]
        if not limit - SLACK <= count <= limit
    ]


@pytest.mark.parametrize(
    ("kind", "text", "rules"),
    [
        (COMMENT, "What waits in this process, by peer.", ["1"]),
        (COMMENT, "Bytes queued in this process, by peer.", []),
        (COMMENT, "So many requests are named in a line.", ["2"]),
        (COMMENT, "It answers from memory.", ["3"]),
        (DOCSTRING, "Have a request executed again.", []),
        (DOCSTRING, "Send it, and the next one.", ["3"]),
        (DOCSTRING, "Return what nobody reads.", ["4", "5"]),
        (DOCSTRING, "Return the number of readers.\n\nIt is told to whoever asks.", ["5", "8"]),
        (PAGE, "Models are reloaded anew, too.", ["6"]),
        (COMMENT, "The file, too large, stands in a directory beside the model.", ["7"]),
        (PAGE, "The limits are those of the server.", ["10"]),
        (DOCSTRING, "Return True for a model so that of two the first is used.", []),
        (PAGE, "A port on which a server listens.", ["9"]),
        (PAGE, "\x00\n\nwrites four files", ["13"]),
        (PAGE, "\x00\n\nThe command writes four files", []),
        (PAGE, "| | |\n|---|---|\n| a | b |", ["14"]),
        (PAGE, "## What it has not\n", ["18"]),
        (TEXT, "the name of a model must be a text", ["20"]),
    ],
)
def test_a_place_is_found(
    monkeypatch: pytest.MonkeyPatch, kind: str, text: str, rules: list[str]
) -> None:
    place = Path(__file__)
    monkeypatch.setattr(style_sheet, "texts", lambda: [Text(place, 1, kind, text)])

    found = [name for name, rule in RULES.items() if [*style_sheet.places(rule)]]
    assert rules == [name.partition(" ")[0] for name in found]


def test_code_and_comments_of_a_page_are_no_prose() -> None:
    page = "Run\n\n    zmqtriton new scale\n\nwrites\n\n<!-- example: output -->\n\n```\nit\n```\n"

    assert "Run\n\x00\n\nwrites\n\n\n\x00\n" == style_sheet.without_code(page)
