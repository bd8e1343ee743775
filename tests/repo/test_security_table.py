"""docs/security.md and the tests agree: each test that it names is there."""

from __future__ import annotations

import re

from tests.repo.test_conformance_table import PAGE, STATES, TESTS, marked_tests


def test_every_attack_stands_once_with_tests_that_exist() -> None:
    found: set[str] = set()
    page = (PAGE.parent / "security.md").read_text("utf-8")
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("| S-")]
    for id, _, tests, state in rows:
        assert id not in found
        found.add(id)
        named = re.findall(r"`([^`]+\.py)::(\w+)`", tests)
        assert named or state.strip() == "open", id
        assert state.strip().partition(":")[0] in STATES, id
        for file, test in named:
            assert test in marked_tests((TESTS / file).read_text("utf-8")), (id, test)
    assert len(found) > 50
