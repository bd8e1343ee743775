"""The laws for code that meets clients, as functions over its syntax trees.

Each returns the lines of a tree that break one law; LAWS has them by number, and `broken` applies
all to the files below a folder: of this repository, or of another package with an add-on.

1. JSON of clients is read and written by `json_documents`.
2. Errors have no values of clients.
3. A local socket for a person's tool has a ToolListener.
4. Files, tasks and timers of a request have an owner, or no name.
5. Long work has Threads, with a bound.
6. A number of a client is checked before it becomes a limit.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.repo.sources import files_below, nodes_of, tree_of

_JSON = frozenset({"loads", "dumps", "load", "dump"})
#: Names that code has for what clients send.
_SENT = frozenset("body content data document payload raw text value".split())
#: Names of functions and classes with which a program waits for connections.
_LISTENING = frozenset(
    "accept listen create_server start_server create_unix_server start_unix_server Listener "
    "HTTPServer ThreadingHTTPServer TCPServer ThreadingTCPServer UnixStreamServer".split()
)
_NAMED_FILES = frozenset("mkstemp mkdtemp mktemp NamedTemporaryFile TemporaryDirectory".split())
_TASKS, _TIMERS = frozenset({"create_task", "ensure_future"}), frozenset({"call_later", "call_at"})
_THREADS = frozenset({"to_thread", "run_in_executor", "ThreadPoolExecutor"})
#: Methods that return texts and values of clients.
_READING = frozenset("decode get get_param group header strip".split())


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Yield each call with the last word of its function."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Call):
            yield getattr(node.func, "attr", getattr(node.func, "id", "")), node


def imported_words(tree: ast.AST) -> set[str]:
    """Return the words of all imported names."""
    words: set[str] = set()
    for node in nodes_of(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [getattr(node, "module", "") or "", *(alias.name for alias in node.names)]
            words.update(word for name in names for word in name.split("."))
    return words


def past_the_door(tree: ast.AST) -> list[int]:
    """Return the lines that read or write JSON themselves."""
    return [
        node.lineno
        for node in nodes_of(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in _JSON
        and getattr(node.value, "id", "") in ("json", "orjson")
    ]


def shown_values(tree: ast.AST) -> list[int]:
    """Return the lines that show a value with `repr`, or what a client has sent in an error."""
    shown = [node.lineno for name, node in calls(tree) if name == "repr"]
    shown += [part.lineno for part in _formatted(tree) if part.conversion == ord("r")]
    for node in nodes_of(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            shown += [part.lineno for part in _formatted(node.exc) if _is_sent(part.value)]
    return shown


def _formatted(tree: ast.AST) -> Iterator[ast.FormattedValue]:
    return (node for node in nodes_of(tree) if isinstance(node, ast.FormattedValue))


def _is_sent(value: ast.expr) -> bool:
    while isinstance(value, ast.Subscript):
        value = value.value
    return isinstance(value, ast.Name) and value.id in _SENT


def listening(tree: ast.AST) -> list[int]:
    """Return the lines that wait for connections, without a ToolListener for them."""
    words = imported_words(tree)
    if "ToolListener" in words or not words & {"asyncio", "http", "socket", "socketserver"}:
        return []
    return [node.lineno for name, node in calls(tree) if name in _LISTENING]


def named_files(tree: ast.AST) -> list[int]:
    """Return the lines that make temporary files with names, which stay after a kill."""
    return [node.lineno for name, node in calls(tree) if name in _NAMED_FILES]


def unowned_tasks(tree: ast.AST) -> list[int]:
    """Return the lines that begin a task which nothing keeps, awaits or can end."""
    return _unkept(tree, _TASKS)


def unowned_timers(tree: ast.AST) -> list[int]:
    """Return the lines that begin a timer or a thread which nothing can end."""
    threads = [node.lineno for name, node in calls(tree) if name in ("Thread", "Timer")]
    return _unkept(tree, _TIMERS) + threads


def _unkept(tree: ast.AST, names: frozenset[str]) -> list[int]:
    parents = {child: node for node in nodes_of(tree) for child in ast.iter_child_nodes(node)}
    used = {
        _word(node)
        for node in nodes_of(tree)
        if isinstance(getattr(node, "ctx", None), ast.Load)
        and getattr(parents[node], "attr", "") != "add_done_callback"
    }
    return [
        node.lineno
        for name, node in calls(tree)
        if name in names and not _is_kept(node, parents[node], used)
    ]


def _is_kept(node: ast.AST, parent: ast.AST, used: set[str]) -> bool:
    if isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
        targets = getattr(parent, "targets", None) or [getattr(parent, "target", None)]
        return any(isinstance(one, ast.Subscript) or _word(one) in used for one in targets)
    is_chained = isinstance(parent, ast.Attribute) and parent.attr != "cancel"
    return not (isinstance(parent, (ast.Expr, ast.Lambda)) or is_chained)


def _word(node: ast.AST | None) -> str:
    return getattr(node, "attr", getattr(node, "id", ""))


def unowned(tree: ast.AST) -> list[int]:
    return named_files(tree) + unowned_tasks(tree) + unowned_timers(tree)


def unbounded(tree: ast.AST) -> list[int]:
    """Return the lines that give work to threads without a bound that refuses."""
    return [node.lineno for name, node in calls(tree) if name in _THREADS]


def unchecked(tree: ast.AST) -> list[int]:
    """Return the lines that make a number of a text, or of an element of a document."""
    return [
        node.lineno
        for name, node in calls(tree)
        if isinstance(node.func, ast.Name) and name in ("int", "float") and node.args
        if isinstance(node.args[0], (ast.Name, ast.Subscript))
        or _word(getattr(node.args[0], "func", None)) in _READING
    ]


LAWS: dict[int, Callable[[ast.AST], list[int]]] = {
    1: past_the_door,
    2: shown_values,
    3: listening,
    4: unowned,
    5: unbounded,
    6: unchecked,
}


def broken(folder: Path) -> set[int]:
    """Return the numbers of the laws that the code below a folder breaks."""
    trees = [tree_of(path) for path in files_below(folder)]
    return {number for number, law in LAWS.items() if any(map(law, trees))}
