"""The code blocks of the guides run as they are printed."""

from __future__ import annotations

import pytest

from tests.system.docs.examples_run import run_page
from tests.system.docs.pages import GUIDES

pytestmark = [
    pytest.mark.system,
    pytest.mark.long(
        "system/docs/test_pages.py::test_the_examples_of_a_page_run",
        "repo/test_doc_examples.py::test_each_page_with_code_is_run",
    ),
]


@pytest.mark.parametrize("page", GUIDES)
def test_the_examples_of_a_guide_run(page: str) -> None:
    run_page(page)
