"""Model files, looked into by a process of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zmqtriton.diagnosis.facts.sources import check_sources
from zmqtriton.diagnosis.facts.syntax import findings

CLASS = "class TritonPythonModel:\n"
EXECUTE = "    def execute(self, requests): ...\n"


def facts_of(tmp_path: Path, text: str) -> list[tuple[str, int, str]]:
    path = tmp_path / "model.py"
    path.write_text(text)
    return [(kind, line, said) for kind, line, _, said in findings(str(path))]


@pytest.mark.parametrize(
    "text",
    [
        CLASS + EXECUTE,
        CLASS + "    async def execute(self, requests): ...\n",
        CLASS + "    def execute(self, *args, **kwargs): ...\n",
        CLASS + "    execute = other\n",
        CLASS + "    @staticmethod\n    def execute(requests): ...\n",
        CLASS + "    @traced\n    def execute(anything): ...\n",
        CLASS + EXECUTE + "    @staticmethod\n    def auto_complete_config(config): ...\n",
        CLASS + EXECUTE + "    @classmethod\n    def auto_complete_config(cls, config): ...\n",
        CLASS + EXECUTE + "    def auto_complete_config(config): ...\n",
        CLASS + EXECUTE + "    async def is_ready(self): ...\n",
        "class TritonPythonModel(Base): ...\n",
        "from base import Model as TritonPythonModel\n",
        "from base import *\n",
        "if True:\n    TritonPythonModel = make()\n",
        "globals()['TritonPythonModel'] = object\n",
        "try:\n    import x\nexcept ImportError:\n    class TritonPythonModel(B): ...\n",
    ],
)
def test_what_may_be_right_is_not_complained_of(tmp_path: Path, text: str) -> None:
    assert [] == facts_of(tmp_path, text)


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (
            "def execute(self): ...",
            "execute(self) is called with 2 arguments, the first of them its object",
        ),
        (
            "def initialize(self): ...",
            "initialize(self) is called with 2 arguments, the first of them its object",
        ),
        (
            "def finalize(self, args): ...",
            "finalize(self, args) is called with 1 argument, the first of them its object",
        ),
        (
            "def auto_complete_config(self, config): ...",
            "auto_complete_config(self, config) is called with 1 argument; is there a "
            "@staticmethod missing?",
        ),
        (
            "async def initialize(self, args): ...",
            "initialize is 'async def', and what it returns is never awaited",
        ),
        (
            "def execute(self, requests):\n        yield 1",
            "execute has a 'yield', so that it returns a generator and no list of responses",
        ),
    ],
)
def test_methods_that_cannot_be_called_are_warned_of(
    tmp_path: Path, method: str, text: str
) -> None:
    execute = "" if "execute" in method else EXECUTE

    assert [("warning", 2, text)] == facts_of(tmp_path, f"{CLASS}    {method}\n{execute}")


@pytest.mark.slow
def test_files_that_are_too_much_do_not_keep_others_from_being_read(tmp_path: Path) -> None:
    texts = {
        "chain": "x = a" + ".b" * 200_000,
        "signs": "x = " + "-" * 200_000 + "1",
        "brackets": "x = " + "(" * 100_000,
        "zeros": "\0" * 1000,
        "last\nline": "class TritonPythonMode: ...",
    }
    paths = []
    for name, text in texts.items():
        paths.append(tmp_path / name)
        paths[-1].write_text(text)
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 30)
    paths[4:4] = [tmp_path / "pipe", tmp_path / "huge", tmp_path / "gone"]

    facts = check_sources(paths)

    assert paths == list(facts)
    assert all(facts[path] for path in paths)
    assert "problem" == facts[paths[-1]][0].kind


@pytest.mark.parametrize(
    ("method", "texts"),
    [
        ("excute", ["Is 'excute' meant to be it?"]),
        ("Execute", ["Is 'Execute' meant to be it?"]),
        ("finalise", ["does not implement", "'finalise'; is it meant to be 'finalize'?"]),
        ("something_else", ["does not implement"]),
    ],
)
def test_misspelt_methods_are_guessed(tmp_path: Path, method: str, texts: list[str]) -> None:
    facts = facts_of(tmp_path, f"{CLASS}    def {method}(self): ...\n")

    assert len(texts) == len(facts)
    assert all(text in said for text, (_, _, said) in zip(texts, facts, strict=True))
