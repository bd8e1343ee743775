"""The generated pages of docs/reference say what the sources say."""

from __future__ import annotations

import sys

import pytest

from tools.reference.__main__ import DIRECTORY, PAGES, text_of

#: From 3.13 on argparse words options with two names in another way.
_IS_WORDED_ALIKE = sys.version_info < (3, 13)


@pytest.mark.parametrize("name", PAGES)
def test_it_is_up_to_date(name: str) -> None:
    if name == "command-lines.md" and not _IS_WORDED_ALIKE:
        pytest.skip("the page has the words of older Pythons")

    written = (DIRECTORY / name).read_text("utf-8")

    assert text_of(name) == written, "run: python -m tools.reference"
