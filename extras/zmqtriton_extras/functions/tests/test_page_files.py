"""The files of the page of a function keep the rules of the server's own pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.standard.cockpit.test_pages import assert_plain, get, makers_of_html
from zmqtriton_extras.functions import files

[_DIRECTORY] = map(Path, files.__path__)


def test_the_page_holds_no_code_and_no_style_and_what_it_loads_is_served() -> None:
    assert_plain((_DIRECTORY / "function.html").read_text("utf-8"))


@pytest.mark.parametrize("path", sorted(_DIRECTORY.glob("*.js")), ids=lambda path: path.name)
def test_no_script_makes_html_or_code_of_text(path: Path) -> None:
    assert [] == makers_of_html(path.read_text("utf-8"))


def test_the_source_of_the_package_is_not_served() -> None:
    assert 404 == get("/pages/__init__.py").status_code
