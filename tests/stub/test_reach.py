"""Statements that a start reaches by name in sources, and objects of a module that stay."""

from __future__ import annotations

import ast

import pytest

from zmqtriton_stub.reach import Reach, ReachStart, TopLevel, difference, retained

PRELOAD = ReachStart("m", "Model", "preload")
MODEL = """
import helper
import numpy as np
from helper import Base as Ground

SIZE = 3
CACHE = {}
CACHE["a"] = 1
np.seterr(all="ignore")
OTHER = 4
if SIZE:
    def make(): return SIZE

class Layer(Ground):
    width = 1

@cached
def load(path): return CACHE, make(path), Layer()

class Model:
    scale = 1
    names = []

    @classmethod
    def preload(cls, args):
        local = OTHER_NAME = cls.build(args)

    @classmethod
    def build(cls, args):
        names = args
        return load(args), helper.tokenizer(lambda OTHER: OTHER)

    def execute(self, requests): return OTHER + scale
"""
HELPER = """
import json
class Base: pass
def tokenizer(f): return words()
def words(): return 1
def unused(): return 2
"""


def reach_of(
    model: str = MODEL, helper: str = HELPER, start: ReachStart = PRELOAD
) -> tuple[Reach, dict[str, TopLevel]]:
    sources = {
        name: TopLevel("", text.encode()) for name, text in (("m", model), ("helper", helper))
    }
    return Reach(sources, [start]), sources


def changes(model: str = MODEL, helper: str = HELPER, start: ReachStart = PRELOAD) -> str:
    """Return the difference of these sources from those above."""
    new = reach_of(model, helper, start)[1]
    return difference(reach_of(start=start)[0], [start], lambda name: (new[name], f"{name}.py"))


def test_only_what_is_reached_by_name_is_compared() -> None:
    changed = MODEL.replace("OTHER + scale", "OTHER").replace("scale = 1", "scale = 2")
    changed = changed.replace("OTHER = 4", "OTHER = 5 # more").replace("\nSIZE", "\n\n\nSIZE")

    assert "" == changes(changed, HELPER.replace("return 2", "return 3"))


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("= cls.build(args)", "= cls.build(None)", "preload changed"),
        ("names = args", "names = 1", "Model.build in m.py changed, and preload uses it"),
        ("return CACHE", "return 1, CACHE", "load in m.py changed"),
        ("@cached\n", "", "load in m.py changed"),
        ("CACHE = {}", "CACHE = []", "CACHE in m.py changed"),
        ('CACHE["a"] = 1', "", "CACHE in m.py changed"),
        ("SIZE = 3", "SIZE = 2", "SIZE in m.py changed"),
        ("return SIZE", "return 1 + SIZE", "make in m.py changed"),
        ("width = 1", "width = 2", "Layer in m.py changed"),
        ("class Model:", "class Model(Layer):", "Model in m.py changed"),
        ("OTHER = 4", "OTHER = 4\ndef load(path): return 1", "load in m.py changed"),
        ("OTHER = 4", "OTHER = 4\ndef cached(f): return f", "cached in m.py changed"),
        ("import helper\n", "import helper2 as helper\n", "helper in m.py changed"),
    ],
)
def test_each_reached_statement_is_compared(before: str, after: str, why: str) -> None:
    assert before in MODEL

    assert why in changes(MODEL.replace(before, after))


@pytest.mark.parametrize(
    ("before", "why"), [("return 1", "words in helper.py"), ("class Base:", "Base in helper.py")]
)
def test_other_files_are_reached_through_imports(before: str, why: str) -> None:
    assert why in changes(
        helper=HELPER.replace(before, before.replace("Base", "Base(Exception)").replace("1", "3"))
    )


@pytest.mark.parametrize(
    "code",
    [
        "from helper import words\ndef start(): return words()",
        "from helper import *\ndef start(): return words()",
        "def start():\n    import helper\n    return helper.words()",
        "def start():\n    from helper import words as w\n    return w()",
        "import helper as h\nstart = h.words()",
        "def start(x=lambda: helper.words()):\n    return x\nimport helper",
        "async def start():\n    global it\n    it = 1\nit = words()\nfrom helper import words",
    ],
)
def test_each_way_of_naming_is_followed(code: str) -> None:
    start = ReachStart("m", "start")
    reach, _ = reach_of(code, start=start)
    new = TopLevel("", HELPER.replace("return 1", "return 5").encode())

    assert ("helper", "words") in reach.parts
    assert "words in helper.py changed, and start uses it" == difference(
        reach,
        [start],
        lambda name: (new if name == "helper" else TopLevel("", code.encode()), f"{name}.py"),
    )


def test_local_names_are_not_those_of_the_module() -> None:
    code = "OTHER = 1\ndef start(OTHER):\n    def inner(): return OTHER\n    return inner, [OTHER]"

    assert ("m", "OTHER") not in reach_of(code, start=ReachStart("m", "start"))[0].parts


def test_imports_functions_and_the_class_itself_are_made_again() -> None:
    reach, sources = reach_of()

    tree, names = retained(reach, "m", sources["m"])

    text = ast.unparse(tree)
    assert {"CACHE", "SIZE", "make", "Layer", "load"} == names
    assert all(word in text for word in ("import helper", "class Model", "OTHER = 4", "seterr"))
    assert not any(word in text for word in ("CACHE =", "SIZE =", "class Layer", "def load"))
