"""The code blocks of the pages run as they are printed."""

from __future__ import annotations

import pytest

from tests.system.docs.examples_run import run_page
from tests.system.docs.pages import ENTRANCES, GUIDES, OTHERS

pytestmark = pytest.mark.system


@pytest.mark.parametrize("page", ENTRANCES)
def test_the_examples_of_a_page_run(page: str) -> None:
    run_page(page)


@pytest.mark.long(
    "system/docs/test_pages.py::test_the_examples_of_a_page_run",
    "repo/test_doc_examples.py::test_each_page_with_code_is_run",
)
@pytest.mark.parametrize("page", [*OTHERS, *GUIDES])
def test_the_examples_of_another_page_run(page: str) -> None:
    run_page(page)
