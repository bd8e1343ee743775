"""The part of a model's sources that a function may reach, found in their text alone.

The unit is a statement at the top level of a module, or in the body of the class that a start
names. A statement is reached if a reached one mentions a name that it binds or changes, in any of
the modules: as a name, after a dot, in an import, or as a string. Of the class of a start, only
members that a reached statement mentions after a dot, and special methods. A statement that runs
during the import is also reached if it may change a reached object, as a decorator that registers
its function does. Too much counts as reached rather than too little. Names that are made at run
time (`getattr(module, "load_" + kind)`) are not seen. Runs no code.
"""

from __future__ import annotations

import ast
import re
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Set, Tuple

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
#: Functions that may change any name.
_CHANGE_ALL = {"exec", "globals", "setattr"}
#: A module, and a name at its top level, or a member as CLASS.MEMBER; "" for the statements that
#: change reached objects during the import.
Key = Tuple[str, str]


class ReachStart(NamedTuple):
    """The beginning of a search: a name of a module, or with `member` only this member of it."""

    module: str
    name: str
    member: str = ""

    @property
    def label(self) -> str:
        return self.member or self.name


class TopLevel:
    """The statements of a module. Raises SyntaxError, or ValueError for NUL bytes."""

    def __init__(self, text: bytes) -> None:
        self.tree = ast.parse(text)
        #: The names that the module binds; names of values, and of values that a call may change.
        self.names: Dict[str, List[ast.stmt]] = {}
        self.assigned: Set[str] = set()
        self.values: Set[str] = set()
        for each in self.tree.body:
            for word in _bound(each):
                self.names.setdefault(word, []).append(each)
            self.assigned |= set() if isinstance(each, (*_DEFINITIONS, *_IMPORTS)) else _bound(each)
            is_fixed = isinstance(getattr(each, "value", None), ast.Constant)
            self.values |= set() if is_fixed else self.assigned & _bound(each)
        for each in self.tree.body:
            for word in _changed(each):
                binding = self.names.get(word, [])
                if each not in binding and any(type(b) not in _IMPORTS for b in binding):
                    binding.append(each)
        #: The names that a statement or function assigns in another place than its own, or changes.
        self.changed = {word for node in ast.walk(self.tree) for word in _changed_by(node)}
        #: The statements that run code during the import, with the nodes that run.
        self.running = [(each, nodes) for each in self.tree.body if (nodes := _running(each))]

    def statements(self, name: str) -> Sequence[ast.stmt]:
        """Return the statements that bind or change a name."""
        return self.names.get(name, ())

    def class_named(self, name: str) -> ast.ClassDef | None:
        """Return the definition of a class at the top level, also below an `if` or `try`."""
        definitions = (
            node
            for statement in self.statements(name)
            for node in _within(statement)
            if isinstance(node, ast.ClassDef) and node.name == name
        )
        return next(definitions, None)

    def members(self, name: str) -> Dict[str, List[ast.AST]]:
        """Return the statements in the body of a class by the members that they bind or change."""
        members: Dict[str, List[ast.AST]] = {}
        for each in getattr(self.class_named(name), "body", ()):
            for member in _bound(each) | _changed(each):
                members.setdefault(member, []).append(each)
        return members

    def head(self, name: str) -> Sequence[ast.AST]:
        """Return the bases and decorators of a class, and other statements that change it."""
        node = self.class_named(name)
        others = [each for each in self.statements(name) if node not in [*_within(each)]]
        return [*node.bases, *node.keywords, *node.decorator_list, *others] if node else others


class Reach:
    """The statements of sources that starts reach."""

    def __init__(self, sources: Mapping[str, TopLevel], starts: Sequence[ReachStart]) -> None:
        self.sources = sources
        #: Classes that are reached member by member.
        self.classes = {(s.module, s.name) for s in starts if s.member}
        #: The nodes that were reached, by their names.
        self.parts: Dict[Key, Sequence[ast.AST]] = {}
        self._names: Set[str] = set()
        #: The names after dots, and strings.
        self._attributes = {"__getattr__"}
        #: Statements that run during the import, by modules, with the names that they may change.
        self._running = {
            module: [(each, self._changes(nodes)) for each, nodes in source.running]
            for module, source in sources.items()
        }
        for start in starts:
            source = sources[start.module]
            if start.member:
                key = start.module, f"{start.name}.{start.member}"
                self._reach(key, source.members(start.name).get(start.member, ()))
            self._reach_name(start.module, source, start.name)
        size = 0, 0
        while size != (len(self.words), len(self.parts)):
            size = len(self.words), len(self.parts)
            self._follow()
        if any(parts for (_, name), parts in self.parts.items() if not name):
            for module, source in sources.items():  # one more module might change the same
                imports = [each for each in source.tree.body if isinstance(each, _IMPORTS)]
                self.parts[module, ""] = [*self.parts[module, ""], *imports]

    @property
    def words(self) -> Set[str]:
        """Return all names that reached statements mention."""
        return self._names | self._attributes

    def _follow(self) -> None:
        """Reach what the words mention."""
        for module, source in self.sources.items():
            for name in sorted(self.words & source.names.keys()):
                self._reach_name(module, source, name)
            own, reached = {n for m, n in self.classes if m == module}, {n for _, n in self.parts}
            effects = [
                each
                for each, names in self._running[module]
                if not own & _bound(each) and names & (reached | {""})
            ]
            self.parts.pop((module, ""), None)
            self._reach((module, ""), effects)
        for module, of_class in sorted(self.classes):
            for member, parts in self.sources[module].members(of_class).items():
                is_special = member.startswith("__") and member != "__call__"
                if is_special or member in self._attributes:
                    self._reach((module, f"{of_class}.{member}"), parts)

    def _reach_name(self, module: str, source: TopLevel, name: str) -> None:
        is_start = (module, name) in self.classes
        self._reach((module, name), source.head(name) if is_start else source.statements(name))

    def _reach(self, key: Key, parts: Sequence[ast.AST]) -> None:
        if key in self.parts:
            return
        self.parts[key] = parts
        for part in parts:
            uses = Uses()
            if isinstance(part, _IMPORTS):
                uses.add_imported(part, key[1])
            else:
                uses.visit(part)
            self._names |= uses.names
            self._attributes |= uses.attributes
            if "." in key[1]:  # the body of a class
                self._attributes |= uses.names

    def _changes(self, nodes: Sequence[ast.AST]) -> Set[str]:
        """Return the names that nodes may change when they run; with "" for any name."""
        words: Set[str] = set()
        arguments: Set[str] = set()
        patched: Set[str] = set()
        for node in nodes:
            words |= Uses.of(node).words
            for each in ast.walk(node):
                if isinstance(each, ast.Call):
                    passed = (*each.args, *(keyword.value for keyword in each.keywords))
                    arguments |= {one.id for one in passed if isinstance(one, ast.Name)}
                elif isinstance(each, ast.Attribute) and not isinstance(each.ctx, ast.Load):
                    patched.add(each.attr)
        sources = self.sources.values()
        changed, assigned, values = (
            {word for source in sources for word in getattr(source, kind)}
            for kind in ("changed", "assigned", "values")
        )
        any_name = {""} if words & _CHANGE_ALL else set()
        return (
            any_name | patched | (values & arguments) | (changed & assigned & self._closure(words))
        )

    def _closure(self, words: Set[str]) -> Set[str]:
        """Return the words, and all words of the statements that bind these names."""
        closure, waiting = set(words), [*words]
        while waiting:
            word = waiting.pop()
            for source in self.sources.values():
                for each in source.statements(word):
                    new = Uses.of(each).words - closure
                    closure |= new
                    waiting += new
        return closure


def difference(
    reach: Reach, new: Reach, starts: Sequence[ReachStart], files: Mapping[str, str]
) -> str:
    """Return the first difference from new sources, in words, or ""; `files` are modules' files."""
    labels = {(s.module, f"{s.name}.{s.member}" if s.member else s.name): s.label for s in starts}
    what = " and ".join(dict.fromkeys(s.label for s in starts))
    for key in (*reach.parts, *new.parts):
        pair = [[*map(ast.dump, one.parts.get(key, ()))] for one in (reach, new)]
        if pair[0] != pair[1]:
            name = key[1] or "a statement at the top"
            text = f"{name} in {files[key[0]]} changed, and {what} uses it"
            return f"{labels[key]} changed" if key in labels else text
    return ""


def retained(reach: Reach, module: str, new: TopLevel) -> Tuple[ast.Module, Set[str]]:
    """Return a module without the statements whose objects stay, and the names of these.

    `reach` belongs to the new sources. Imports and plain functions are executed again, which makes
    the same.
    """
    classes = {name for of_module, name in reach.classes if of_module == module}
    nodes: List[ast.AST] = []
    names: Set[str] = set()
    for (of_module, name), parts in reach.parts.items():
        for each in parts if of_module == module and "." not in name else ():
            is_plain = isinstance(each, _FUNCTIONS) and not each.decorator_list
            is_plain |= isinstance(each, _IMPORTS) or each not in new.tree.body
            if not is_plain and not classes & _bound(each):
                nodes.append(each)
                names |= _bound(each)
    body = [each for each in new.tree.body if each not in nodes]
    return ast.Module(body=body, type_ignores=[]), names


class Uses(ast.NodeVisitor):
    """The names that a node mentions and does not bind by itself."""

    def __init__(self) -> None:
        self.names: Set[str] = set()
        #: The names after dots, and strings.
        self.attributes: Set[str] = set()

    @classmethod
    def of(cls, node: ast.AST) -> Uses:
        uses = cls()
        uses.visit(node)
        return uses

    @property
    def words(self) -> Set[str]:
        return self.names | self.attributes

    def add_imported(self, statement: Any, word: str = "") -> None:
        """Add the names of an import, or only those that it imports as `word`."""
        for alias in statement.names:
            if word in ("", alias.asname or alias.name.partition(".")[0]):
                self.attributes.update(alias.name.split("."))

    def visit_Name(self, node: ast.Name) -> None:
        self.names.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.attributes.add(node.attr)
        self.visit(node.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and " " not in node.value:
            self.attributes.update(re.findall(r"\w+", node.value))

    def visit_Call(self, node: ast.Call) -> None:
        if getattr(node.func, "id", "") in ("self", "cls"):
            self.attributes.add("__call__")
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.names.update(node.names)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        self.add_imported(node)

    visit_ImportFrom = visit_Import

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for each in (*node.decorator_list, node.args, *filter(None, [node.returns])):
            self.visit(each)
        self._enter(node.args, node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.args)
        self._enter(node.args, [node.body])

    def _enter(self, arguments: ast.arguments, body: Sequence[ast.AST]) -> None:
        """Add what the body of a function mentions, without its local names."""
        inner = Uses()
        for each in body:
            inner.visit(each)
        own = [*arguments.args, *arguments.kwonlyargs, *getattr(arguments, "posonlyargs", ())]
        local = {each.arg for each in (*own, arguments.vararg, arguments.kwarg) if each}
        declared: Set[str] = set()
        for each in body:
            local |= _bound(each)
            declared |= {n for g in ast.walk(each) if isinstance(g, ast.Global) for n in g.names}
        self.names |= inner.names - (local - declared)
        self.attributes |= inner.attributes


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all below it, but not the bodies of definitions."""
    yield node
    if not isinstance(node, (*_DEFINITIONS, ast.Lambda)):
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.comprehension):  # its names are its own
                yield from (inner for part in (each.iter, *each.ifs) for inner in _within(part))
            else:
                yield from _within(each)


def _bound(statement: ast.AST) -> Set[str]:
    """Return the names that a statement binds where it stands."""
    names: Set[str] = set()
    for node in _within(statement):
        if isinstance(node, _IMPORTS):
            names |= {a.asname or a.name.partition(".")[0] for a in node.names}
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif not isinstance(node, ast.alias):  # definitions, `except … as`, and patterns
            named = (getattr(node, field, None) for field in ("name", "rest"))
            names |= {name for name in named if isinstance(name, str)}
    return names


def _changed(statement: ast.AST) -> Set[str]:
    """Return the names of objects that a statement changes, as `NAME[0] = 1` or `NAME.add(1)`."""
    names: Set[str] = set()
    if isinstance(statement, (*_DEFINITIONS, *_IMPORTS)):
        return names
    for node in _within(statement):
        is_target = isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(
            node.ctx, ast.Load
        )
        called = node.value if isinstance(node, ast.Expr) else None
        root: Any = node if is_target else getattr(called, "func", None)
        while isinstance(root, (ast.Attribute, ast.Subscript, ast.Call)):
            root = root.func if isinstance(root, ast.Call) else root.value
            if isinstance(root, ast.Name):
                names.add(root.id)
    return names


def _changed_by(node: ast.AST) -> Set[str]:
    """Return the names that a single node changes in other places than its own."""
    if isinstance(node, ast.Global):
        return {*node.names}
    is_target = isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(
        node.ctx, ast.Load
    )
    called = node.func if isinstance(node, ast.Call) else None
    changed = node if is_target else called if isinstance(called, ast.Attribute) else None
    return Uses.of(changed).words if changed else set()


def _running(statement: ast.stmt) -> Sequence[ast.AST]:
    """Return the nodes of a statement that call or change something during the import."""
    nodes: List[ast.AST] = [statement]
    if isinstance(statement, _FUNCTIONS):
        nodes = [*statement.decorator_list, statement.args]
        return nodes if statement.decorator_list else ()
    if isinstance(statement, ast.ClassDef):
        return [*statement.bases, *statement.keywords, *statement.decorator_list]
    runs = any(isinstance(node, (ast.Call, ast.Delete)) for node in _within(statement))
    return nodes if runs or _changed(statement) else ()
