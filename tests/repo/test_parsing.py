"""Documents of clients that are read on a loop have a limit of bytes: all other clients wait."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.repo.sources import files_below, tree_of
from tests.support.needs import ROOT

#: The rooms that receive bytes of clients.
ROOMS = (
    "frontends/zmqtriton_frontends/http_api",
    "extras/zmqtriton_extras/web_sockets",
    "extras/zmqtriton_extras/routes",
    "standard/zmqtriton_standard/generate",
    "extras/zmqtriton_extras/jobs/batches/routes.py",
    "extras/zmqtriton_extras/jobs/batches/extension.py",
    "extras/zmqtriton_extras/jobs/routes.py",
    "extras/zmqtriton_extras/jobs/extension.py",
    "extras/zmqtriton_extras/openai",
    "extras/zmqtriton_extras/clouds",
)
#: Functions of libraries whose time grows with the text.
READERS = frozenset({"loads", "parse_qsl", "parse_qs"})
#: Functions without a limit of their own, and the reason why they need none.
EXEMPT = {
    "json_documents.py parse": "its callers run it in a thread (perform, read_now)",
    "json_documents.py _parse_with_nan": "a part of parse",
    "app.py answer_fault": "our own text",
    "forwarding.py describe": "a model's own text",
    "forwarding.py begin": "a model's own head",
    "model.py initialize": "the configuration",
    "model.py _serve": "a head, of which the frontend limits the headers",
    "model.py declared_inputs": "the configuration",
    "process.py _look": "the configuration",
    "api.py __init__": "a query, which is a part of the limited head",
    "api.py json": "the model's own code calls it, and its limit is that of bodies",
    "asgi.py describe": "the model's own text",
    "request.py _check_keys": "a part of the reading of a document, in the same thread",
    "routes.py _request": "its caller reads a limited body",
    "__init__.py _variables": "a model's own text",
    "__main__.py _read": "a process of its own",
    "call_text.py _string": "a model's own text",
    "choices.py read_logprobs": "a model's own text",
    "choices.py read_calls": "a model's own text",
    "formats.py parse": "a model's own text",
    "text.py _with_arguments": "runs in a thread",
}


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _names(tree: ast.AST) -> set[str]:
    return {
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    }


def unlimited(path: Path, tree: ast.AST) -> list[str]:
    """Return the functions that read a text without a constant `…MAX…_BYTES`."""
    return [
        f"{path.name} {function.name}"
        for function in _functions(tree)
        if not READERS.isdisjoint(names := _names(function))
        and not any("MAX" in name and name.endswith("BYTES") for name in names)
    ]


def test_a_text_of_a_client_is_read_on_a_loop_up_to_a_limit() -> None:
    functions = {
        row
        for room in ROOMS
        for path in files_below(ROOT / room)
        if "token_metrics" not in path.parts  # it reads lines of frontends
        for row in unlimited(path, tree_of(path))
    }

    assert EXEMPT.keys() == functions


def test_a_function_without_a_limit_is_found() -> None:
    text = "def f(text):\n    return json.loads(text)\n"
    limited = (
        "def f(text):\n    if len(text) > _MAX_BYTES:\n        return 0\n" + text.split("\n", 1)[1]
    )

    assert ["a.py f"] == unlimited(Path("a.py"), ast.parse(text))
    assert [] == unlimited(Path("a.py"), ast.parse(limited))
