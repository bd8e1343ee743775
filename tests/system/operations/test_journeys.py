"""The journeys in ARCHITECTURE.md are the functions that a request enters, in this order."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.bench.calls import counting_server
from tests.support.needs import ROOT
from tests.support.server import ask_add_sub

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.version_info[:2] < (3, 11), reason="names need CPython 3.11"),
]

#: A numbered step of a drawing, and its function.
_STEP = re.compile(r"^(\d) +(zmqtriton_\S+)", re.MULTILINE)


def _drawn(heading: str) -> list[str]:
    """Return the functions of a drawing, as the counting names them."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    _, _, section = text.partition(f"## {heading}\n")
    steps = _STEP.findall(section.partition("\n## ")[0])
    assert [*range(1, len(steps) + 1)] == [int(number) for number, _ in steps]
    return [name for _, name in steps]


def test_a_call_of_another_model_takes_the_way_that_is_drawn(tmp_path: Path) -> None:
    steps = _drawn("Life of a call of another model")

    with counting_server(tmp_path, "bls_sync", "add_sub") as counter:
        [*processes] = counter.entered("stub", lambda: ask_add_sub(counter.server, "bls_sync"))

    ways = [[_dotted(name) for name in one] for one in processes]
    [caller] = [way for way in ways if steps[0] in way]
    assert steps == [name for name in caller if name in steps]
    assert len(steps) <= 8


def _dotted(counted: str) -> str:
    """Return the name of a function as ARCHITECTURE.md has it."""
    path = re.sub("^.*/zmqtriton_", "zmqtriton_", counted)
    return path.replace(".py:", ".").replace("/", ".")
