"""`zmqtriton check` finds what no server could load in files of functions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from zmqtriton_extras.functions.tests.test_hints import HEAD, IN_BATCH, REFUSED

pytestmark = pytest.mark.slow


def check(path: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "zmqtriton", "check", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_each_refusal_of_a_load_is_found_with_its_line(tmp_path: Path) -> None:
    heads = [head for head, _ in REFUSED if "Unknown" not in head]
    rows = [*(("@model", head) for head in heads), *(("@model(batch=4)", h) for h, _ in IN_BATCH)]
    functions = [f"{row}\ndef f{n}{head}: return ''\n" for n, (row, head) in enumerate(rows)]
    file = tmp_path / "bad.py"
    file.write_text(f"print('loud')\n{HEAD}{''.join(functions)}")

    status, text = check(file)

    assert 1 == status
    lines = file.read_text().splitlines()
    for number, (row, _) in enumerate(rows):
        line = lines.index(row, lines.index(f"def f{number}{rows[number][1]}: return ''") - 1) + 1
        assert f"bad.py:{line}:1: error: f{number}: " in text, (number, text)
    assert len(rows) == text.count("error: f")


def test_functions_of_a_repository_are_checked(tmp_path: Path) -> None:
    version = tmp_path / "models" / "shout" / "1"
    version.mkdir(parents=True)
    source = "from zmqtriton import model\n@model\ndef shout(text) -> str: return text\n"
    (version / "model.py").write_text(source)

    status, text = check(tmp_path / "models")

    assert (1, True) == (status, "model.py:2:1: error: shout: parameter 'text' needs a" in text)
    (version / "model.py").write_text(source.replace("text)", "text: str)"))
    assert (0, "1 model, 0 problems, 0 warnings\n") == check(tmp_path / "models")


CALLED = """
import asyncio
from collections.abc import Iterator
from typing import NamedTuple
from zmqtriton import Failed, Image, Refused, model
print("loud")

class Two(NamedTuple):
    a: int

@model
def wrong(x: int) -> str: return x
@model
def raises(x: int) -> str: return [][x]
@model
def refuses(x: int) -> str: raise Refused("no", status=404)
@model
def fails(x: int) -> str: raise Failed("no text")
@model
def two(x: int) -> Two: return 3
@model(batch=4)
def batch(x: list[str]) -> list[float]: return x
@model
def stream(x: str) -> Iterator[str]: yield 3
@model
async def later(x: dict) -> dict: return {"a": object()}
@model
class Setup:
    def __init__(self): raise RuntimeError("no GPU")
    def __call__(self, image: Image) -> int: return len(image.data)
@model(streams=4)
class Chat:
    def admit(self, prompt: str) -> list: return [prompt]
    def step(self, states: list[list]) -> list[str | None]: return [3 for _ in states]
@model(name="other")
def fine(x: int) -> str: return str(x)
"""
FOUND = {
    "wrong": "error: wrong, called with {\"x\": 1}: output 'output': expected str, got an integer",
    "raises": 'warning: raises, called with {"x": 1}: IndexError: list index out of range',
    "two": 'error: two, called with {"x": 1}: the function must return Two, got an integer',
    "batch": 'error: batch, called with {"x": "hello"}: output \'output\': expected float, got',
    "stream": 'error: stream, called with {"x": "hello"}: output \'output\': expected str, got',
    "later": "error: later, called with {\"x\": {}}: output 'output'.a: no JSON for a value of",
    "Setup": "...: RuntimeError: no GPU",
    "Chat": 'error: Chat, called with {"prompt": "hello"}: output \'output\': expected str, got',
}


def test_a_call_of_each_function_shows_answers_that_are_wrong(tmp_path: Path) -> None:
    file = tmp_path / "called.py"
    file.write_text(CALLED)

    status, text = check(file)

    assert (1, len(FOUND)) == (status, text.count("called.py:")), text
    for name, words in FOUND.items():
        assert words in text, name
    assert "11 functions, 6 problems, 2 warnings\n" == text.splitlines(keepends=True)[-1]


@pytest.mark.parametrize(
    ("line", "severity", "found"),
    [
        ("import module_that_is_missing", "warning", ":2:1: warning: ModuleNotFoundError: No mod"),
        ("1 / 0", "error", ":2:1: error: ZeroDivisionError: division by zero"),
        ("import os; os._exit(3)", "error", "error: its import, or a call, ends the process"),
    ],
)
def test_a_file_that_cannot_be_imported_is_told(
    tmp_path: Path, line: str, severity: str, found: str
) -> None:
    file = tmp_path / "bad.py"
    file.write_text(
        f"from zmqtriton import model\n{line}\n@model\ndef shout(text: str) -> str: return text\n"
    )

    status, text = check(file)

    assert (severity == "error", True) == (status == 1, found in text), text
