"""The small faults that one module can have, each as an edit of its text.

No faults are made in log lines and other texts, docstrings, annotations, assertions, raised errors,
members of enumerations, and named numbers: these are choices, which a test could only repeat.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
}
#: Larger ones are units, sizes and patience.
_MAX_CONSTANT = 99
_LOGS = frozenset(
    {"debug", "info", "warning", "error", "exception", "critical", "log", "_log", "write_log"}
)
_TEXT_FUNCTIONS = frozenset({"__repr__", "__str__"})
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Text = ast.JoinedStr | ast.List | ast.Tuple


class Mutation(NamedTuple):
    """One fault; `start` and `end` are offsets in the module's bytes."""

    path: str
    line: int
    last_line: int
    #: Empty outside of functions, where lines run when the module is imported.
    function: str
    before: str
    after: str
    start: int
    end: int
    replacement: str
    #: Tells equal changes in one function apart.
    number: int = 0

    @property
    def name(self) -> str:
        """The mutation's name; only a change of its own function changes the name."""
        again = f" #{self.number + 1}" if self.number else ""
        return f"{self.path} {self.function or '-'}: {self.before} -> {self.after}{again}"

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.replacement.encode() + source[self.end :]

    def changes(self, source: bytes) -> bool:
        """Return whether the edit changes code: a comment between operands may hold the sign."""
        return _meaning(self.apply(source)) != _meaning_of_module(source)


def _meaning(source: bytes) -> int:
    return hash(ast.dump(ast.parse(source)))


#: For all faults of a module.
_meaning_of_module = lru_cache(maxsize=1000)(_meaning)


def mutations(path: str, source: bytes) -> list[Mutation]:
    """Return every fault that this module can have, in the order of its lines."""
    walk = _Walk(path, source)
    tree = ast.parse(source)
    walk.block(tree.body)
    seen: Counter[tuple[str, str, str]] = Counter()
    numbered = []
    for mutation in sorted(walk.mutations, key=lambda m: (m.start, m.end, m.after)):
        change = (mutation.function, mutation.before, mutation.after)
        numbered.append(mutation._replace(number=seen[change]))
        seen[change] += 1
    return numbered


class _Walk:
    def __init__(self, path: str, source: bytes) -> None:
        self.mutations: list[Mutation] = []
        self._path = path
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._scopes: list[ast.ClassDef | _Function] = []
        self._statement: ast.stmt | None = None

    # -------------------------------------------------------------- statements

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self._statement = statement
            self._visit_statement(statement)

    def _visit_statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assert | ast.Raise | ast.Import | ast.ImportFrom):
            return
        if isinstance(node, _Function | ast.ClassDef):
            self._visit_scope(node)
        elif isinstance(node, ast.If | ast.While):
            self._visit_condition(node)
        elif isinstance(node, ast.Continue):
            self._edit(node, "continue", "break")
        elif isinstance(node, ast.Break):
            self._edit(node, "break", "continue")
        elif isinstance(node, ast.Expr):
            self._visit_call_statement(node)
        else:
            if isinstance(node, ast.Return) and node.value is not None:
                self._negate_return(node.value)
            if isinstance(node, ast.AugAssign):
                self._turn_sign(node, node.target, node.value, node.op, "=")
            if not _is_named_number(node):
                self._children(node)

    def _visit_scope(self, node: ast.ClassDef | _Function) -> None:
        if isinstance(node, ast.ClassDef):
            if any(ast.unparse(base).endswith(("Enum", "Flag")) for base in node.bases):
                return
        elif node.name in _TEXT_FUNCTIONS:
            return
        else:
            for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
                self._expression(default)
        self._scopes.append(node)
        self.block(node.body)
        self._scopes.pop()

    def _visit_condition(self, node: ast.If | ast.While) -> None:
        test = ast.unparse(node.test)
        if test == "TYPE_CHECKING" or "__name__" in test:
            return
        if not isinstance(node.test, ast.Constant):
            # a name bound in the condition would be missing, which any test notices
            if ":=" not in test:
                self._edit(node.test, f"if {test}", "if False", "False")
                if isinstance(node, ast.If):
                    self._edit(node.test, f"if {test}", "if True", "True")
            self._expression(node.test)
        self.block(node.body)
        self.block(node.orelse)

    def _visit_call_statement(self, node: ast.Expr) -> None:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call) and not _is_log(call):
            self._edit(node, ast.unparse(node), "pass")
        if not isinstance(call, ast.Constant):
            self._expression(node.value)

    def _negate_return(self, value: ast.expr) -> None:
        function = self._scopes[-1]
        if not isinstance(function, _Function) or function.returns is None:
            return
        is_negated_otherwise = isinstance(value, ast.Compare | ast.UnaryOp | ast.Constant)
        if ast.unparse(function.returns) == "bool" and not is_negated_otherwise:
            text = ast.unparse(value)
            self._edit(
                value, f"return {text}", f"return not ({text})", f"not ({self._text(value)})"
            )

    # ------------------------------------------------------------- expressions

    def _children(self, node: ast.AST) -> None:
        for name, field in ast.iter_fields(node):
            for child in field if isinstance(field, list) else [field]:
                if name == "annotation":
                    continue
                if isinstance(child, ast.expr):
                    self._expression(child)
                elif isinstance(child, ast.stmt):
                    self.block([child])
                elif isinstance(child, ast.AST):
                    self._children(child)

    def _expression(self, node: ast.expr) -> None:
        if isinstance(node, ast.JoinedStr):
            return
        if isinstance(node, ast.Call) and (_is_log(node) or _is_counter(node)):
            return
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            old, new = _COMPARISONS[type(node.ops[0])]
            self._turn(node, node.left, node.comparators[0], old, new)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            operand = ast.unparse(node.operand)
            self._edit(node, f"not {operand}", operand, f"({self._text(node.operand)})")
        elif isinstance(node, ast.BoolOp):
            old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            self._turn(node, node.values[0], node.values[1], old, new)
        elif isinstance(node, ast.BinOp):
            self._turn_sign(node, node.left, node.right, node.op, "")
        elif isinstance(node, ast.Constant):
            self._change_constant(node)
        self._children(node)

    def _turn_sign(
        self, node: ast.AST, left: ast.expr, right: ast.expr, op: ast.operator, suffix: str
    ) -> None:
        is_text = any(
            isinstance(side, _Text)
            or (isinstance(side, ast.Constant) and isinstance(side.value, str))
            for side in (left, right)
        )
        if isinstance(op, ast.Add | ast.Sub) and not is_text:
            old, new = ("+", "-") if isinstance(op, ast.Add) else ("-", "+")
            self._turn(node, left, right, re.escape(old + suffix), new + suffix)

    def _change_constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._edit(node, f"{value} in {self._context()}", str(not value))
        elif isinstance(value, int) and value <= _MAX_CONSTANT:
            self._edit(node, f"{value} in {self._context()}", str(value + 1))

    # -------------------------------------------------------------------- text

    def _turn(self, node: ast.AST, left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        """Replace the operator between two operands."""
        begin, end = self._span(left)[1], self._span(right)[0]
        between = self._source[begin:end].decode()
        sign = re.search(rf"\b{old}\b" if old[0].isalpha() else old, between)
        if sign is None:
            return
        start = begin + len(between[: sign.start()].encode())
        text = ast.unparse(node)
        sides = ast.unparse(left), ast.unparse(right)
        self._add(node, text, f"{sides[0]} {new} {sides[1]}", start, start + len(sign[0]), new)

    def _edit(self, node: ast.AST, before: str, after: str, replacement: str | None = None) -> None:
        start, end = self._span(node)
        self._add(node, before, after, start, end, after if replacement is None else replacement)

    def _add(
        self, node: ast.AST, before: str, after: str, start: int, end: int, replacement: str
    ) -> None:
        assert self._statement is not None
        # What a statement begins with may run on its first line alone.
        line = getattr(node, "lineno", self._statement.lineno)
        names = ".".join(scope.name for scope in self._scopes)
        in_function = any(isinstance(scope, _Function) for scope in self._scopes)
        self.mutations.append(
            Mutation(
                self._path,
                line,
                getattr(node, "end_lineno", line) or line,
                names if in_function else "",
                _short(before),
                _short(after),
                start,
                end,
                replacement,
            )
        )

    def _context(self) -> str:
        assert self._statement is not None
        return ast.unparse(self._statement).partition("\n")[0]

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self._source[start:end].decode()


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 70 else f"{words[:67]}..."


def _is_log(call: ast.Call) -> bool:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in _LOGS


def _is_counter(call: ast.Call) -> bool:
    """Return whether a call creates a counter of numbers, which may begin anywhere."""
    return ast.unparse(call.func) in ("count", "itertools.count")


def _is_named_number(node: ast.stmt) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(target, ast.Name) and target.id.isupper() for target in targets)
