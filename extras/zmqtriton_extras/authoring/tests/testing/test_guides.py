"""The examples of the guide for tests pass; tests/system/docs runs those of the other pages."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.needs import ROOT
from zmqtriton.main import main
from zmqtriton_extras.authoring.demo import MODELS as DEMO_MODELS

pytestmark = pytest.mark.slow

GUIDES = ROOT / "docs" / "guides"


def _text(page: str) -> str:
    return (GUIDES / page).read_text("utf-8")


def test_what_the_guide_for_tests_prints_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(DEMO_MODELS, tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    assert 0 == main(["new", "totals", "--sequence"])
    assert 0 == main(["new", "prices", "--class"])
    route, *_ = re.findall(r"^```python\n(.*?)^```", _text("routes.md"), re.DOTALL | re.MULTILINE)
    (tmp_path / "models" / "prices" / "1" / "routes.py").write_text(route)
    text = _text("testing.md")
    *codes, alone = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)

    names: dict[str, Any] = {}
    for code in codes:
        exec(code, names)
    names["test_sums"]()
    monkeypatch.syspath_prepend(tmp_path / "models" / "add_sub" / "1")
    exec(alone, {})
    sys.modules.pop("model")
