"""axe-core over a page of a browser: what keeps people from using it.

`make .venv-clients/axe.stamp` fetches it, where there is npm.
"""

from __future__ import annotations

from tests.support.browser import Browser
from tests.support.needs import ROOT, skip_missing

_SOURCE = ROOT / ".venv-clients/node/node_modules/axe-core/axe.min.js"


def violations(browser: Browser) -> list[str]:
    """Return each rule that the page breaks, with the elements that do."""
    if not _SOURCE.is_file():
        skip_missing("axe-core")
    if browser.evaluate("typeof axe") == "undefined":
        browser.evaluate(f"{_SOURCE.read_text('utf-8')}; null")
    return browser.evaluate(
        "axe.run({resultTypes: ['violations']}).then(({violations}) => violations"
        ".flatMap((rule) => rule.nodes.map((node) => `${rule.id}: ${node.html.slice(0, 120)}`)))"
    )
