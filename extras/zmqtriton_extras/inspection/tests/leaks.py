"""Models that leak, each in another way; the lines that are marked keep what they make."""

from __future__ import annotations

from typing import NamedTuple

MARK = "# leaks"
_BEGIN = "import collections, functools, gc, threading\nimport numpy as np\n\n\n"


class Leak(NamedTuple):
    #: The class of the model, and what stands before it.
    code: str
    #: The name of what holds it; "" where a line alone is expected.
    holder: str = ""


def _model(execute: str, before: str = "", initialize: str = "pass") -> str:
    return (
        f"{_BEGIN}{before}\n\nclass TritonPythonModel:\n"
        f"    def __init__(self):\n        {initialize}\n\n"
        f"    def execute(self, number):\n        {execute}\n"
    )


LEAKS = {
    "list_of_an_instance": Leak(
        _model(f"self.kept.append(bytearray(20000))  {MARK}", initialize="self.kept = []"),
        "TritonPythonModel.kept",
    ),
    "dict_of_a_module": Leak(
        _model(f"CACHE[number] = b'x' * (20000 + number)  {MARK}", "CACHE = {}"), "CACHE"
    ),
    "dict_of_an_instance": Leak(
        _model(f"self.answers[str(number)] = bytes(20000)  {MARK}", initialize="self.answers = {}"),
        "TritonPythonModel.answers",
    ),
    "arrays_in_a_dict": Leak(
        _model(f"self.answers[number] = np.ones(3000)  {MARK}", initialize="self.answers = {}"),
        "TritonPythonModel.answers",
    ),
    "dict_in_a_dict": Leak(
        _model(
            f"STATE['rows'][number] = np.ones(3000)  {MARK}", "STATE = {'rows': {}, 'other': 1}"
        ),
        "STATE['rows']",
    ),
    "set_of_a_class": Leak(
        _model(
            f"Known.names.add('name ' * 4000 + str(number))  {MARK}",
            "class Known:\n    names = set()\n",
        ),
        "Known.names",
    ),
    "arrays_in_a_deque": Leak(
        _model(
            f"self.last.append(np.ones(3000))  {MARK}",
            initialize="self.last = collections.deque()",
        ),
        "TritonPythonModel.last",
    ),
    "cache_of_a_function": Leak(
        _model(
            "rows(number)",
            "@functools.lru_cache(maxsize=None)\ndef rows(number):\n"
            f"    return np.full(3000, number)  {MARK}\n",
        ),
        "the cache of rows()",
    ),
    "variable_of_a_closure": Leak(
        _model(
            "note(number)",
            "def make():\n    seen = []\n\n    def note(number):\n"
            f"        seen.append(bytearray(20000))  {MARK}\n\n"
            "    return note\n\n\nnote = make()\n",
        ),
        "seen of note()",
    ),
    "default_of_a_function": Leak(
        _model(
            "log(number)",
            f"def log(number, rows=[]):\n    rows.append(bytearray(20000))  {MARK}\n",
        ),
        "a default of log()",
    ),
    "list_in_a_dict": Leak(
        _model(f"STATE['rows'].append(np.ones(3000))  {MARK}", "STATE = {'rows': [], 'other': 1}"),
        "STATE['rows']",
    ),
    "chain_of_objects": Leak(
        _model(
            f"self.head = Node(self.head, bytearray(20000))  {MARK}",
            "class Node:\n    def __init__(self, below, data):\n"
            "        self.below, self.data = below, data\n",
            "self.head = None",
        )
    ),
    "errors_with_their_frames": Leak(
        _model(
            "try:\n            self.fail(number)\n        except ValueError as error:\n"
            "            self.errors.append(error)\n\n    def fail(self, number):\n"
            f"        data = bytearray(20000)  {MARK}\n        raise ValueError(number)",
            initialize="self.errors = []",
        ),
        "TritonPythonModel.errors",
    ),
}


def line_of(code: str) -> int:
    return next(n for n, text in enumerate(code.splitlines(), 1) if text.endswith(MARK))
