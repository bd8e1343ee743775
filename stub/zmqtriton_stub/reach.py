"""The part of a model's sources that a function reaches by name, found in their text alone.

The unit is a statement at the top level of a module, or in the body of the class that a start
names. A statement is reached if a reached one mentions a name that it binds, imports from its
module, or changes; of the class of a start, only members that a reached statement mentions after a
dot. Names that are made at run time (`getattr(module, "load_" + kind)`) are not seen. Too much
counts as reached rather than too little: a local import reaches each name of its module that the
function mentions after a dot. Runs no code.
"""

from __future__ import annotations

import ast
import importlib.util
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Set, Tuple

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
#: A module, and a name at its top level or a member as CLASS.MEMBER.
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

    def __init__(self, package: str, text: bytes) -> None:
        self.package = package
        self.tree = ast.parse(text)
        self._bound: Dict[str, List[ast.stmt]] = {}
        for each in self.tree.body:
            for word in _bound(each):
                self._bound.setdefault(word, []).append(each)
        for each in self.tree.body:
            for word in _changed(each):
                binding = self._bound.get(word, [])
                if each not in binding and any(type(b) not in _IMPORTS for b in binding):
                    binding.append(each)

    def statements(self, name: str) -> Sequence[ast.stmt]:
        """Return the statements that bind or change a name."""
        return self._bound.get(name, ())

    def class_named(self, name: str) -> ast.ClassDef | None:
        """Return the definition of a class at the top level, also below an `if` or `try`."""
        definitions = (
            node
            for statement in self.statements(name)
            for node in _within(statement)
            if isinstance(node, ast.ClassDef) and node.name == name
        )
        return next(definitions, None)

    def parts(self, start: ReachStart) -> Sequence[ast.AST]:
        """Return the statements in the body of a class that bind a member."""
        body = getattr(self.class_named(start.name), "body", ())
        return [each for each in body if start.member in _bound(each) | _changed(each)]

    def head(self, name: str) -> Sequence[ast.AST]:
        """Return the bases and decorators of a class."""
        node = self.class_named(name)
        return [*node.bases, *node.keywords, *node.decorator_list] if node else []

    def stars(self) -> Iterator[ast.ImportFrom]:
        """Yield the imports of all names of a module."""
        for each in self.tree.body:
            if isinstance(each, ast.ImportFrom) and each.names[0].name == "*":
                yield each


class Reach:
    """The statements of sources that starts reach."""

    def __init__(self, sources: Mapping[str, TopLevel], starts: Sequence[ReachStart]) -> None:
        self._sources = sources
        #: Classes that are reached member by member.
        self.classes = {(s.module, s.name) for s in starts if s.member}
        #: The nodes that were reached, by their names.
        self.parts: Dict[Key, Sequence[ast.AST]] = {}
        for start in starts:
            if start.member:
                self._reach_member(start)
            self._reach(start.module, start.name)

    def _reach(self, module: str, name: str) -> None:
        source, key = self._sources.get(module), (module, name)
        if source is None or key in self.parts:
            return
        is_start = key in self.classes
        self.parts[key] = parts = source.head(name) if is_start else source.statements(name)
        for part in parts:
            self._follow(module, source, part, name)
        for star in () if parts else source.stars():
            self._reach(_module_of(star, source.package), name)

    def _reach_member(self, start: ReachStart) -> None:
        source, key = self._sources[start.module], (start.module, f"{start.name}.{start.member}")
        if key not in self.parts:
            self.parts[key] = parts = source.parts(start)
            for part in parts:
                self._follow(start.module, source, part, "")

    def _follow(self, module: str, source: TopLevel, part: ast.AST, name: str) -> None:
        """Reach what a node mentions; of an import, only the name it was reached by."""
        if isinstance(part, _IMPORTS):
            self._follow_import(source, part, {name}, set())
            return
        uses = Uses.of(part)
        for word in uses.names:
            self._reach(module, word)
            for statement in source.statements(word):
                if isinstance(statement, _IMPORTS):
                    self._follow_import(source, statement, {word}, uses.attributes)
        for statement in uses.imports:
            self._follow_import(source, statement, None, uses.attributes)
        for of_module, of_class in self.classes:
            body = getattr(self._sources[of_module].class_named(of_class), "body", ())
            members = {word for each in body for word in _bound(each)}
            mentioned = uses.attributes if name else uses.attributes | uses.names
            for member in sorted(members & mentioned):
                self._reach_member(ReachStart(of_module, of_class, member))

    def _follow_import(
        self, source: TopLevel, statement: Any, words: Set[str] | None, attributes: Set[str]
    ) -> None:
        """Reach the imported names, and the names after a dot in imported modules."""
        origin = _module_of(statement, source.package)
        for alias in statement.names:
            if words is not None and (alias.asname or alias.name.partition(".")[0]) not in words:
                continue
            if isinstance(statement, ast.Import):
                first, modules = alias.name.partition(".")[0], [alias.name]
                modules += [] if alias.asname else [first]
            else:
                self._reach(origin, alias.name)
                modules = [f"{origin}.{alias.name}"]
                modules += [origin] if alias.name == "*" else []
            for module in modules:
                for attribute in attributes if module in self._sources else ():
                    self._reach(module, attribute)


def difference(
    reach: Reach, starts: Sequence[ReachStart], find_new: Callable[[str], Tuple[TopLevel, str]]
) -> str:
    """Return the first difference from new sources, in words, or "".

    `find_new` returns the new source of an old module, and the name of its file. Raises OSError,
    SyntaxError and ValueError.
    """
    labels = {(s.module, f"{s.name}.{s.member}" if s.member else s.name): s.label for s in starts}
    what = " and ".join(dict.fromkeys(s.label for s in starts))
    for key, parts in reach.parts.items():
        module, name = key
        source, file = find_new(module)
        first, _, member = name.partition(".")
        if member:
            new = source.parts(ReachStart(module, first, member))
        else:
            new = source.head(name) if key in reach.classes else source.statements(name)
        if [*map(ast.dump, parts)] != [*map(ast.dump, new)]:
            label = labels.get(key)
            return f"{label} changed" if label else f"{name} in {file} changed, and {what} uses it"
    return ""


def retained(reach: Reach, module: str, new: TopLevel) -> Tuple[ast.Module, Set[str]]:
    """Return a module without the statements whose objects stay, and the names of these.

    Imports and plain functions are executed again, which makes the same.
    """
    classes = {name for of_module, name in reach.classes if of_module == module}
    nodes: List[ast.stmt] = []
    names: Set[str] = set()
    for of_module, name in reach.parts:
        for each in new.statements(name) if of_module == module and name not in classes else ():
            is_plain = isinstance(each, _FUNCTIONS) and not each.decorator_list
            if not is_plain and not isinstance(each, _IMPORTS) and not classes & _bound(each):
                nodes.append(each)
                names |= _bound(each)
    body = [each for each in new.tree.body if each not in nodes]
    return ast.Module(body=body, type_ignores=[]), names


class Uses(ast.NodeVisitor):
    """The names that a node mentions and does not bind by itself."""

    def __init__(self) -> None:
        self.names: Set[str] = set()
        #: The names after dots.
        self.attributes: Set[str] = set()
        self.imports: List[ast.stmt] = []

    @classmethod
    def of(cls, node: ast.AST) -> Uses:
        uses = cls()
        uses.visit(node)
        return uses

    def visit_Name(self, node: ast.Name) -> None:
        self.names.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.attributes.add(node.attr)
        self.visit(node.value)

    def visit_Global(self, node: ast.Global) -> None:
        self.names.update(node.names)

    def visit_Import(self, node: ast.stmt) -> None:
        self.imports.append(node)

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
        local = {node.arg for node in ast.walk(arguments) if isinstance(node, ast.arg)}
        declared: Set[str] = set()
        for each in body:
            local |= _bound(each)
            declared |= {n for g in ast.walk(each) if isinstance(g, ast.Global) for n in g.names}
        self.names |= inner.names - (local - declared)
        self.attributes |= inner.attributes
        self.imports += inner.imports


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all below it, but not the bodies of definitions."""
    yield node
    if not isinstance(node, (*_DEFINITIONS, ast.Lambda)):
        for each in ast.iter_child_nodes(node):
            yield from _within(each)


def _bound(statement: ast.AST) -> Set[str]:
    """Return the names that a statement binds where it stands."""
    names: Set[str] = set()
    for node in _within(statement):
        if isinstance(node, _DEFINITIONS):
            names.add(node.name)
        elif isinstance(node, _IMPORTS):
            names |= {a.asname or a.name.partition(".")[0] for a in node.names}
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
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


def _module_of(statement: Any, package: str) -> str:
    """Return the module that `from … import` names."""
    if isinstance(statement, ast.Import):
        return ""
    name = "." * statement.level + (statement.module or "")
    try:
        return importlib.util.resolve_name(name, package)
    except (ImportError, ValueError):
        return ""  # Python refuses it in its own words
