"""docs/security.md and the tests agree: each test that it names exists."""

from __future__ import annotations

import re

from tests.repo.test_conformance_table import PAGE, STATES, TESTS, marked_tests


def test_every_attack_stands_once_with_tests_that_exist() -> None:
    page = (PAGE.parent / "security.md").read_text("utf-8")
    tests: dict[str, list[tuple[str, str]]] = {}
    for id, names in re.findall(r"^- (S-\d+): ((?:`.+`,?\s+)+)", page, re.MULTILINE):
        assert id not in tests
        tests[id] = re.findall(r"`([^`]+\.py)::(\w+)`", names)
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("| S-")]

    ids = [row[0].strip() for row in rows]
    assert len(ids) == len(set(ids)) > 50
    assert set(tests) <= set(ids)
    for id, _, _, state in rows:
        id, state = id.strip(), state.strip()
        assert tests.get(id) or state == "open", id
        assert state.partition(":")[0] in STATES, id
        for file, test in tests.get(id, []):
            assert test in marked_tests((TESTS / file).read_text("utf-8")), (id, test)
