"""JSON as Triton's reader takes it, made strict."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.config.growth import growth
from zmqtriton.config.errors import ConfigError
from zmqtriton.config.pbtxt import parse_override, strict

_TEXTS = st.text("abz_$é \n\t'\"\\/1:,{}[]", max_size=8)
_DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
)
#: Texts of any length that a client may send to have a model loaded.
_HOSTILE: dict[str, Callable[[int], str]] = {
    "a string without an end": lambda n: '{"' + '\\"' * n,
    "one in single quotes": lambda n: "{'" + "\\'" * n,
    "quotes of both kinds": lambda n: "{" + "'\"" * n,
    "a space without an end": lambda n: "{a" + " " * n + "}",
    "commas": lambda n: "{a: [" + ", " * n,
    "words": lambda n: "{" + "a " * n,
    "a key that comes twice": lambda n: (
        "{" + "".join(f'"{k}":1,' for k in range(n)) + '"z":1,"z":1}'
    ),
    "a long name": lambda n: '{"' + "abcdefgh" * n + '":1}',
}


def test_bare_words_single_quotes_and_commas_at_the_end_are_made_strict() -> None:
    document = strict("{name: 'm', 'input': [{dims: [1, -2e3,],},], \"a\\q\": 'say \"x\"\n',}")

    expected = {"name": "m", "input": [{"dims": [1, -2000.0]}], "aq": 'say "x"\n'}
    assert expected == json.loads(document)


@given(_DOCUMENTS, st.integers())
def test_a_document_is_the_same_however_leniently_it_is_written(document: Any, seed: int) -> None:
    text = _written(document, Random(seed))

    assert document == json.loads(strict(text))


@pytest.mark.parametrize("text", ['{"a": "\\\'b\'}', '{"\\u0041$x : 1}', "{a: 'b}", "{'"])
def test_a_string_without_an_end_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="Invalid config override: "):
        parse_override(text)


@pytest.mark.parametrize("kind", _HOSTILE)
def test_the_time_for_a_text_grows_as_its_length_does(kind: str) -> None:
    make = _HOSTILE[kind]

    grown = growth(_refuse, make(2_000), make(16_000))

    assert grown < 30  # for eight times the length; where each sign begins anew, 64


def _refuse(text: str) -> None:
    with contextlib.suppress(ConfigError):
        parse_override(text)


def _written(value: Any, random: Random) -> str:
    """Write a document with all that Triton's reader forgives, here and there."""
    space = lambda: random.choice(["", "", " ", "\n\t"])  # noqa: E731
    comma = lambda inner: random.choice(["", ",", " , "]) if inner else ""  # noqa: E731
    if isinstance(value, str):
        return _quoted(value, random)
    if isinstance(value, list):
        inner = [space() + _written(one, random) + space() for one in value]
        return "[" + ",".join(inner) + comma(inner) + "]"
    if isinstance(value, dict):
        inner = [
            f"{space()}{_key(key, random)}{space()}:{_written(one, random)}{space()}"
            for key, one in value.items()
        ]
        return "{" + ",".join(inner) + comma(inner) + "}"
    return json.dumps(value)


def _key(key: str, random: Random) -> str:
    is_word = key.isascii() and key.replace("$", "_").isidentifier()
    return key if is_word and random.random() < 0.5 else _quoted(key, random)


def _quoted(text: str, random: Random) -> str:
    if random.random() < 0.5:
        return json.dumps(text)
    inside = text.replace("\\", "\\\\")
    return "'" + inside.replace("'", random.choice(["\\'", "\\u0027"])) + "'"
