"""Statements that a start reaches by name in sources, and objects of a module that stay."""

from __future__ import annotations

import ast
import sys

import pytest

from zmqtriton_stub.reach import Reach, ReachStart, TopLevel, difference, retained

PRELOAD = ReachStart("m", "Model", "preload")
FILES = {"m": "m.py", "helper": "helper.py"}
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
    sources = {name: TopLevel(text.encode()) for name, text in (("m", model), ("helper", helper))}
    return Reach(sources, [start]), sources


def changes(model: str = MODEL, helper: str = HELPER, start: ReachStart = PRELOAD) -> str:
    """Return the difference of these sources from those above."""
    old, new = reach_of(start=start)[0], reach_of(model, helper, start)[0]
    return difference(old, new, [start], FILES)


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
    new, _ = reach_of(code, HELPER.replace("return 1", "return 5"), start)

    assert ("helper", "words") in reach.parts
    text = "words in helper.py changed, and start uses it"
    assert text == difference(reach, new, [start], FILES)


#: Code of a model, code of a helper, and the text that an edit replaces in one of them.
HIDDEN = {
    "an import below try": (
        "try:\n    from helper import *\nexcept ImportError: pass\n$ load()",
        "def load(): return 1",
    ),
    "a name that is bound again": (
        "from helper import *\nload = cache(load)\n$ load()",
        "def load(): return 1",
    ),
    "getattr": ("$ getattr(cls, 'build')()\n    def build(): return 1", ""),
    "globals": ("def build(): return 1\n$ globals()['build']()", ""),
    "a module by its name": ("$ import_module('hel' + 'per').load()", "def load(): return 1"),
    "another name of a module": ("import helper\nh = helper\n$ h.load()", "def load(): return 1"),
    "a module as an argument": (
        "import helper\ndef build(x): return x.load()\n$ build(helper)",
        "def load(): return 1",
    ),
    "a module of a module": ("import nets\n$ nets.helper.load()", "def load(): return 1"),
    "a function that sets a global": (
        "NET = None\ndef setup():\n    global NET\n    NET = 1\nsetup()\n$ NET",
        "",
    ),
    "a registry": (
        "import helper\nREG = {}\ndef put(f): REG[f.__name__] = f\n$ REG[args['a']]()",
        "from m import put\n@put\ndef ab(): return 1",
    ),
    "a registry of classes": (
        "REG = {}\nclass Base:\n    def __init_subclass__(cls): REG[cls.__name__] = cls\n"
        "class AB(Base): x = 1\n$ REG[args['a']].x",
        "",
    ),
    "a constant of another module": (
        "import helper\nhelper.SIZE = 1\n$ helper.load()",
        "SIZE = 0\ndef load(): return SIZE",
    ),
    "an object of another module": (
        "from helper import load, CONF\nCONF['a'] = 1\n$ load()",
        "CONF = {}\ndef load(): return CONF['a']",
    ),
    "an argument of a call": ("CONF = {}\ndone = fill(CONF, n=1)\n$ CONF['a']", ""),
    "what a call does with an argument": (
        "CONF = {}\ndef fill(c): c['a'] = 1\nfill(CONF)\n$ CONF['a']",
        "",
    ),
    "a name in a comprehension": (
        "def load(): return 1\n$ [load for load in 'ab'], load()",
        "",
    ),
    "an argument of a lambda": (
        "def load(): return 1\ndef f(x=lambda load: load): return load()\n$ f()",
        "",
    ),
    "a special method": ("$ cls()[0]\n    def __getitem__(self, i): return 1", ""),
    "a call of the object": ("$ self('a')\n    def __call__(self, text): return 1", ""),
    "an attribute that is made": ("import helper\n$ helper.x", "def __getattr__(n): return 1"),
    "a member that is set": ("def f(cls): return 1\n$ cls.f()\nModel.f = classmethod(f)", ""),
    "a pattern": ("match {'a': 1}:\n    case {'a': N}: pass\n$ N", ""),
    "setattr": ("setattr(helper, 'SIZE', 1)\n$ helper.load()", "def load(): return SIZE"),
    "exec": ("exec('SIZE = 1')\n$ SIZE", ""),
}


@pytest.mark.parametrize("case", HIDDEN)
def test_a_change_behind_a_name_is_found(case: str) -> None:
    def reach(number: str) -> Reach:
        model, helper = (text.replace("1", number) for text in HIDDEN[case])
        before, _, after = model.partition("$ ")
        code = f"{before}\nclass Model:\n    def preload(cls, args): cls.w = {after}"
        return reach_of(code, helper)[0]

    if case != "a pattern" or sys.version_info >= (3, 10):
        assert "" == difference(reach("1"), reach("1"), [PRELOAD], FILES)
        assert "" != difference(reach("1"), reach("2"), [PRELOAD], FILES)


def test_one_more_module_counts_where_modules_register_objects() -> None:
    model, helper = HIDDEN["a registry"]
    code = model.replace("$ ", "class Model:\n    def preload(cls, args): ")

    old, new = (reach_of(f"{line}\n{code}", helper)[0] for line in ("", "import more"))

    assert "a statement at the top in m.py changed" in difference(old, new, [PRELOAD], FILES)


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
