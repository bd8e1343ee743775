"""The generated pages of docs/reference say what the sources say."""

from __future__ import annotations

import re
import sys

import pytest

from tests.repo.source_texts import is_in_the_source
from tools.reference.__main__ import DIRECTORY, PAGES, text_of
from zmqtriton.config import parameters
from zmqtriton.config.known_parameters import PARAMETERS
from zmqtriton.config.parameters import CANARY_PREFIX
from zmqtriton.config.pbtxt import parse_text

#: From 3.13 on argparse words options with two names in another way.
_IS_WORDED_ALIKE = sys.version_info < (3, 13)


@pytest.mark.parametrize("name", PAGES)
def test_it_is_up_to_date(name: str) -> None:
    if name == "command-lines.md" and not _IS_WORDED_ALIKE:
        pytest.skip("the page has the words of older Pythons")

    written = (DIRECTORY / name).read_text("utf-8")

    assert text_of(name) == written, "run: python -m tools.reference"


def _examples(page: str) -> list[str]:
    """The indented code of a page, a text for each block."""
    return re.findall(r"(?:^    .*\n)+", (DIRECTORY / page).read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("example", _examples("config.md"))
def test_the_examples_of_the_configuration_are_read(example: str) -> None:
    assert parse_text(example).ByteSize() > 0


def test_refusals_that_are_named_are_those_of_the_server() -> None:
    text = (DIRECTORY / "config.md").read_text("utf-8")

    named = re.findall(r"Refused: `([^`]+)`", text)
    assert [] == [one for one in named if not is_in_the_source(one)]
    assert len(named) > 8


def _tables(page: str) -> list[list[str]]:
    """The first cells of the rows of each table, if they are texts."""
    parts = (DIRECTORY / page).read_text("utf-8").split("\n## ")
    return [re.findall(r"^\| `(.+?)` \|", part, re.MULTILINE) for part in parts]


def test_each_error_is_one_of_the_source() -> None:
    texts = [text for table in _tables("errors.md") for text in table]

    assert [] == [text for text in texts if not is_in_the_source(text)]
    assert 60 < len(set(texts)) == len(texts)


def test_errors_are_found_by_their_first_words() -> None:
    for table in _tables("errors.md"):
        words = [re.sub("[^a-z ]", "", text.lower()) for text in table]
        assert sorted(words) == words


def test_no_parameter_that_the_server_reads_is_left_out() -> None:
    constants = [
        value
        for name, value in vars(parameters).items()
        if name.isupper() and not isinstance(value, int)
    ]
    names = {one for value in constants for one in ([value] if type(value) is str else value)}

    assert names - {CANARY_PREFIX} <= {one.name for of in PARAMETERS.values() for one in of}
