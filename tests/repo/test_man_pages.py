"""The manual pages say what the commands' help says, and can be read."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.conftest import ROOT, find_tool
from tools import man_pages


def test_they_are_up_to_date() -> None:
    written = {path.name: path.read_text("utf-8") for path in (ROOT / "man").iterdir()}

    assert man_pages.pages() == written, "run: python -m tools.man_pages"


@pytest.mark.parametrize("name", ["zmqtriton", "zmqtriton-ctl"])
def test_troff_has_nothing_to_complain_about(name: str) -> None:
    shown = subprocess.run(
        [find_tool("groff"), "-man", "-Tutf8", "-ww", "-rLL=78n", f"man/{name}.1"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )

    assert "" == shown.stderr
    assert "SEE ALSO" in re.sub(".\b", "", shown.stdout)
