"""The code blocks of the pages beside the guides run as they are printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.docs.examples_run import run_page
from tests.system.docs.pages import OTHERS

pytestmark = pytest.mark.system


@pytest.mark.parametrize("page", OTHERS)
def test_the_examples_of_a_page_run(page: str, tmp_path: Path) -> None:
    run_page(page, tmp_path)
