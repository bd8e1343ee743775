"""The pages whose code blocks are run."""

from __future__ import annotations

from tests.support.needs import ROOT

#: Guides without code.
_NO_CODE = ("checklist.md", "clouds.md", "comparison.md", "index.md")
GUIDES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "docs" / "guides").glob("*.md")
    if path.name not in _NO_CODE
)
#: Where users begin.
ENTRANCES = ["README.md", "docs/tutorial.md"]
OTHERS = [
    "docs/wrong.md",
    "docs/ctl.md",
    "docs/door.md",
    "docs/fleet.md",
    "docs/metrics.md",
    "docs/operations.md",
]
PAGES = [*GUIDES, *ENTRANCES, *OTHERS]
