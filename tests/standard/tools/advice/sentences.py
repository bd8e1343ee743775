"""Collects the sentences of advice in the code of explain and doctor.

A sentence is what stands where a finding, a row of a table or a refusal has its advice. Values that
are filled in, and the branches of a choice, make several texts or gaps of one.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.support.needs import ROOT

DIAGNOSIS = ROOT / "zmqtriton" / "diagnosis"
#: Where advice stands among the arguments of what makes a finding.
_PLACES = {"error": 1, "warning": 1, "note": 1, "Row": 1, "Words": 2}
_PLACES |= {"_Refusal": 1, "full": 2, "judge": 1}
#: A gap, for a value that is only known when it is printed.
_GAP = "\0"


class Sentence(NamedTuple):
    text: str
    place: str

    def begins_like(self, printed: str) -> bool:
        """Return True if printed advice may begin with this, as far as the first gap."""
        first = re.split(f"{_GAP}|" + r"\{[^{}]*\}", self.text)[0]
        return bool(first) and (printed.startswith(first) or first.startswith(printed))


@cache
def sentences(*folders: Path) -> list[Sentence]:
    """Return each sentence of the folders, or of all that the doctor says, with a place."""
    own = (*DIAGNOSIS.rglob("*.py"), *ROOT.glob("*/zmqtriton_*/*/findings.py"))
    paths = [path for folder in folders for path in folder.glob("*.py")] or own
    matches: dict[str, Sentence] = {}
    for path in sorted(paths):
        for sentence in _Module(path).sentences():
            matches.setdefault(sentence.text, sentence)
    return list(matches.values())


class _Module:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._tree = ast.parse(path.read_text("utf-8"))
        self._functions = [n for n in ast.walk(self._tree) if isinstance(n, ast.FunctionDef)]

    def sentences(self) -> Iterator[Sentence]:
        for call in (node for node in ast.walk(self._tree) if isinstance(node, ast.Call)):
            advice = _advice_of(call)
            place = f"{self._path.parent.name}/{self._path.name}:{call.lineno}"
            for text in self._texts(advice, call) if advice is not None else ():
                if text.strip(_GAP + " .;"):
                    yield Sentence(text, place)

    def _texts(self, node: ast.expr, call: ast.Call) -> list[str]:
        """Return the texts that an expression may have."""
        match node:
            case ast.Constant(str(text)):
                return [text]
            case ast.IfExp(body=body, orelse=orelse):
                return self._texts(body, call) + self._texts(orelse, call)
            case ast.JoinedStr(values=values):
                parts = [self._texts(value, call) for value in values]
                return ["".join(choice) for choice in itertools.product(*parts)]
            case ast.FormattedValue(value=value):
                return self._texts(value, call)
            case ast.Name(id=name):
                assigned = [*self._assigned(name, call)]
                return [text for each in assigned for text in self._texts(each, call)] or [_GAP]
        return [_GAP]

    def _assigned(self, name: str, call: ast.AST) -> Iterator[ast.expr]:
        """Yield what a name is given in the call's function, or else in the module."""
        own = [f for f in self._functions if any(node is call for node in ast.walk(f))]
        own.sort(key=lambda function: function.lineno)
        for scope in (*own[::-1][:1], self._tree):
            values = [
                value
                for node in ast.walk(scope)
                if isinstance(node, ast.Assign)
                for value in _values(node, name)
            ]
            if values:
                yield from values
                return
            if name == "advice" and scope is not self._tree:
                yield from self._of_table(scope)

    def _of_table(self, scope: ast.AST) -> Iterator[ast.expr]:
        """Yield the advice in a table whose rows are unpacked as `advice, command`."""
        for node in ast.walk(scope):
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Subscript):
                continue
            if not isinstance(node.targets[0], ast.Tuple):
                continue
            for table in self._assigned(ast.unparse(node.value.value), scope):
                if isinstance(table, ast.Dict):
                    for row in table.values:
                        if isinstance(row, ast.Tuple):
                            yield row.elts[0]


def _values(node: ast.Assign, name: str) -> Iterator[ast.expr]:
    for target in node.targets:
        if isinstance(target, ast.Name) and target.id == name:
            yield node.value
        elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            for one, value in zip(target.elts, node.value.elts, strict=True):
                if isinstance(one, ast.Name) and one.id == name:
                    yield value


def _advice_of(call: ast.Call) -> ast.expr | None:
    named = next((k.value for k in call.keywords if k.arg == "advice"), None)
    if named is not None:
        return named
    if isinstance(call.func, ast.Name | ast.Attribute):
        position = _PLACES.get(ast.unparse(call.func).removeprefix("Finding."))
    else:  # `error` or `note`, as a function has chosen
        position = 1 if isinstance(call.func, ast.Call) else None
    if position is None or len(call.args) <= position:
        return None
    return call.args[position]
