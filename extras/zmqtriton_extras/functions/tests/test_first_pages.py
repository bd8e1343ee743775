"""The first pages of other systems are functions of at most as many lines."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from zmqtriton_extras.functions.sources import models_in
from zmqtriton_extras.functions.tests.first_pages import FOLDER, PAGES, Page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.file)
def test_a_page_is_one_file_that_is_no_longer(page: Page) -> None:
    path = FOLDER / f"{page.file}.py"
    code = ast.parse(path.read_text())
    docstring = code.body[0]
    lines = [line for line in path.read_text().splitlines()[docstring.end_lineno :] if line]

    assert (page.model,) == models_in(path)
    assert len(lines) <= page.lines


def test_each_file_is_a_page() -> None:
    assert {f"{page.file}.py" for page in PAGES} == {
        path.name for path in Path(FOLDER).glob("*.py")
    }
