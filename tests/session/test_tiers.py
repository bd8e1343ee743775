"""The choice of the files of a tier, and of the quick run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.session import tiers


@pytest.mark.parametrize(
    ("mark", "left_out_of"),
    [
        ("", ["long"]),
        ("pytest.mark.slow", ["quick", "long"]),
        ("[\n    pytest.mark.system,\n    pytest.mark.long('a.py::b'),\n]", ["quick", "first"]),
    ],
)
def test_a_file_is_left_out_by_its_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str, left_out_of: list[str]
) -> None:
    monkeypatch.setattr(tiers, "_TESTS", tmp_path)
    file = tmp_path / "test_it.py"
    file.write_text(f"import pytest\n\npytestmark = {mark or None}\n\n\ndef test_it(): ...\n")
    assert left_out_of == [
        name
        for name, quick, tier in (
            ("quick", True, None),
            ("first", False, tiers.FIRST),
            ("long", False, tiers.LONG),
        )
        for options in [{"--quick": quick, "--tier": tier}]
        if tiers.pytest_ignore_collect(file, cast(Any, SimpleNamespace(getoption=options.get)))
    ]
