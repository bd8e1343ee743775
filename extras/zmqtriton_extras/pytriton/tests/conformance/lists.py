"""Recorded answers, and the cases that may differ from them on purpose.

On purpose: the cases that docs/recorded-differences.md names under the heading of PyTriton. Our
answers to them are kept too, and a case that does not differ has no place there.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.conformance.lists import DIFFERENCES, HEADING_OF_PYTRITON
from tests.conformance.newer_pythons import as_of_all

RECORDED = Path(__file__).resolve().parent / "recorded"
INTENDED = "intended"


def recorded(table: str) -> dict[str, Any]:
    """PyTriton's answers by the names of the cases; of INTENDED, our own."""
    path = RECORDED / f"{table}.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def write(table: str, answers: dict[str, Any]) -> None:
    """One document a table: an answer for each name, in the order of the table."""
    text = json.dumps(answers, indent=1, ensure_ascii=False) + "\n"
    (RECORDED / f"{table}.json").write_text(text, "utf-8")


def differing() -> list[str]:
    section = DIFFERENCES.read_text("utf-8").partition(HEADING_OF_PYTRITON)[2]
    cases = [line for line in section.splitlines() if line.strip().startswith("Cases:")]
    return re.findall(r"`(\w+)`", " ".join(cases))


def complaints(answers: dict[str, Any], table: str) -> list[str]:
    """Return what is wrong with our answers to a table, a line each."""
    theirs, ours, names = recorded(table), recorded(INTENDED), set(differing())
    faults = [f"{name}: recorded, but not played" for name in theirs if name not in answers]
    for name, answer in answers.items():
        is_theirs = written(theirs.get(name)) == written(answer)
        if is_theirs and name in names:
            faults.append(f"{name}: take it out of {DIFFERENCES.name}, it no longer differs")
        expected = ours.get(name) if name in names else theirs.get(name)
        if not is_theirs and written(expected) != written(answer):
            faults.append(f"{name}: expected {written(expected)}, got {written(answer)}")
    return faults


def written(answer: Any) -> str:
    """As text, which tells 1 from 1.0 and one order of keys from another."""
    return as_of_all(json.dumps(answer, ensure_ascii=False))
