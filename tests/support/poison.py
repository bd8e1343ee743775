"""Tensors that were read after their block was free, as a server with ZT_POISON=1 logs them.

Processes of tests that are guests of such a server keep their own findings.
"""

from __future__ import annotations

import re

from tools import poison

#: The file of the tool, for the settings of memory.
FILE = poison.__file__

_LINE = re.compile(rf".*{re.escape(poison.FOUND)}a (?:tensor was|block was|lease of) .*")


def findings_in(log: str) -> list[str]:
    """Return the findings in a log, and those of this process since the last call."""
    findings = [*_LINE.findall(log), *poison.findings]
    poison.findings.clear()
    return findings
