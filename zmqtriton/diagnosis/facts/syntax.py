"""A program of its own: parses model files and prints each error as a line.

Started by path from `sources`, with the paths of the files on stdin. It imports and runs nothing of
them. A file that exhausts the parser ends the program, and `sources` continues after that file.
"""

from __future__ import annotations

import ast
import difflib
import json
import os
import resource
import signal
import stat
import sys
from collections.abc import Iterable, Iterator

_MAX_BYTES = 4 << 20
_TIMEOUT_S = 10
_MAX_MEMORY_BYTES = 2 << 30
_MODEL_CLASS = "TritonPythonModel"
#: The methods that the stub calls, with the number of arguments.
_ARGUMENT_COUNTS = {"initialize": 1, "execute": 1, "finalize": 0, "is_ready": 0}
_AUTO_COMPLETE = "auto_complete_config"
_SYNC_METHODS = ("initialize", "finalize", _AUTO_COMPLETE)
#: Functions that can bind names without a statement; code that uses one may define any name.
_DYNAMIC_BINDING_NAMES = {"globals", "setattr", "exec", "eval", "vars"}

_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_Finding = tuple[str, int, int, str]


def findings(path: str) -> Iterator[_Finding]:
    """Return the findings in a file, as (kind, line, column, text).

    The kind is syntax, problem or warning; or the caller decides: then it is import, input or
    output, with the name that the code uses.
    """
    data = _read(path)
    if data is None:
        yield "warning", 0, 0, f"the file is not looked into: it has more than {_MAX_BYTES} bytes"
        return
    try:
        tree = ast.parse(data, path)
    except SyntaxError as error:
        yield "syntax", error.lineno or 0, error.offset or 0, f"SyntaxError: {error.msg}"
        return
    except ValueError as error:
        yield "syntax", 0, 0, f"SyntaxError: {error}"
        return
    except (RecursionError, MemoryError):
        yield "warning", 0, 0, "the file is not looked into: it is nested too deeply"
        return
    yield from _module_findings(tree, path)


def _read(path: str) -> bytes | None:
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} must be a regular file")
        data = file.read(_MAX_BYTES + 1)
    return None if len(data) > _MAX_BYTES else data


def _module_findings(tree: ast.Module, path: str) -> Iterator[_Finding]:
    statements = list(_statements(tree.body))
    models = [s for s in statements if isinstance(s, ast.ClassDef) and s.name == _MODEL_CLASS]
    if models:
        yield from _class_findings(models[-1], path)
        yield from _imports(statements)
        yield from _tensors(tree)
    elif not any(_may_bind(statement) for statement in statements) and not any(
        isinstance(n, ast.Name) and n.id in _DYNAMIC_BINDING_NAMES for n in ast.walk(tree)
    ):
        package = os.path.basename(os.path.dirname(path))
        module = f"{package}.{os.path.splitext(os.path.basename(path))[0]}"
        text = f"AttributeError: module '{module}' has no attribute '{_MODEL_CLASS}'"
        classes = {s.name: s for s in statements if isinstance(s, ast.ClassDef)}
        meant = _similar(_MODEL_CLASS, classes)
        if meant:
            where = classes[meant]
            text += f"; is it the class '{meant}'?"
            yield "problem", where.lineno, where.col_offset + 1, text
        else:
            names = [
                each.name
                for each in tree.body
                if isinstance(each, _FunctionNode | ast.ClassDef)
                if isinstance(each, _FunctionNode) or "def __call__(" in ast.unparse(each)
            ]
            text += f"; put @model of zmqtriton above {', '.join(names)}" if names else ""
            yield "problem", 0, 0, text


def _similar(name: str, names: Iterable[str]) -> str:
    """Return the known name that was probably meant, or ""."""
    lower = {each.lower(): each for each in names}
    matches = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.75)
    return lower[matches[0]] if matches else ""


def _imports(statements: Iterable[ast.stmt]) -> Iterator[_Finding]:
    """Return the modules that the file imports at any rate, from the places of usual imports."""
    for statement in statements:
        if isinstance(statement, ast.Try):
            return  # what it tries may be missing
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            names = [statement.module or ""]
        else:
            names = []
        for name in names:
            yield "import", statement.lineno, statement.col_offset + 1, name.partition(".")[0]
        if any(isinstance(n, ast.Attribute) and n.attr == "path" for n in ast.walk(statement)):
            return


def _tensors(tree: ast.AST) -> Iterator[_Finding]:
    """Return the names of tensors that calls of pb_utils have as texts.

    If a model calls other models, a tensor may be one of theirs.
    """
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    by_name = [(_called(call), call) for call in calls]
    asks_others = any(name == "InferenceRequest" for name, _ in by_name)
    for name, call in by_name:
        texts = [a.value for a in call.args if isinstance(a, ast.Constant) and type(a.value) is str]
        if texts and name == "get_input_tensor_by_name":
            yield "input", call.lineno, call.col_offset + 1, texts[0]
        elif texts and name == "Tensor" and not asks_others:
            yield "output", call.lineno, call.col_offset + 1, texts[0]


def _called(call: ast.Call) -> str:
    """Return the last part of the name of the called function."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Iterate over the statements of a body and its branches, but not of functions and classes."""
    waiting = list(reversed(body))
    while waiting:
        statement = waiting.pop()
        yield statement
        if isinstance(statement, _FunctionNode | ast.ClassDef):
            continue
        for child in ast.iter_child_nodes(statement):
            if isinstance(child, ast.stmt):
                waiting.append(child)
            elif isinstance(child, ast.ExceptHandler | ast.match_case):
                waiting += child.body


def _may_bind(statement: ast.stmt, name: str = _MODEL_CLASS) -> bool:
    if isinstance(statement, ast.ImportFrom | ast.Import):
        return any((alias.asname or alias.name) in (name, "*") for alias in statement.names)
    if isinstance(statement, _FunctionNode | ast.ClassDef):
        return statement.name in (name, "__getattr__")
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(statement))


def _class_findings(model: ast.ClassDef, path: str) -> Iterator[_Finding]:
    statements = list(_statements(model.body))
    has_more = bool(model.keywords or model.decorator_list) or any(
        ast.unparse(base) != "object" for base in model.bases
    )
    if not has_more and not any(_may_bind(s, "execute") for s in statements):
        text = f"Python model {path} does not implement `execute` method."
        methods = (s.name for s in statements if isinstance(s, _FunctionNode))
        meant = _similar("execute", methods)
        text += f" Is '{meant}' meant to be it?" if meant else ""
        yield "warning", model.lineno, model.col_offset + 1, text
    yield from _misspelt_methods(statements)
    for method in statements:
        if isinstance(method, _FunctionNode) and method.name in (*_ARGUMENT_COUNTS, _AUTO_COMPLETE):
            for text in _method_warnings(method):
                yield "warning", method.lineno, method.col_offset + 1, text


def _misspelt_methods(statements: Iterable[ast.stmt]) -> Iterator[_Finding]:
    """Return methods that are not called, with a name similar to one that would be."""
    methods = {s.name: s for s in statements if isinstance(s, _FunctionNode)}
    missing = {*_ARGUMENT_COUNTS, _AUTO_COMPLETE} - {"execute", *methods}
    for name in sorted(missing):
        meant = _similar(name, [each for each in methods if each not in _ARGUMENT_COUNTS])
        if meant:
            method = methods[meant]
            text = f"the server does not call '{meant}'; is it meant to be '{name}'?"
            yield "warning", method.lineno, method.col_offset + 1, text


def _method_warnings(method: _FunctionNode) -> Iterator[str]:
    name = method.name
    if isinstance(method, ast.AsyncFunctionDef) and name in _SYNC_METHODS:
        yield f"{name} is 'async def', and what it returns is never awaited"
    if name == "execute" and _has_yield(method):
        yield "execute has a 'yield', so that it returns a generator and no list of responses"
    decorators = {ast.unparse(decorator) for decorator in method.decorator_list}
    if not decorators <= {"staticmethod", "classmethod"}:
        return
    # A plain function of a class is called on the class here, so that nothing is bound.
    is_bound = "staticmethod" not in decorators and (name != _AUTO_COMPLETE or bool(decorators))
    count = _ARGUMENT_COUNTS.get(name, 1) + is_bound
    arguments = method.args
    maximum = len(arguments.posonlyargs) + len(arguments.args)
    minimum = maximum - len(arguments.defaults)
    needs_names = any(default is None for default in arguments.kw_defaults)
    if minimum <= count and (count <= maximum or arguments.vararg) and not needs_names:
        return
    plural = "" if count == 1 else "s"
    called = f"{count} argument{plural}" + (", the first of them its object" if is_bound else "")
    text = f"{name}({ast.unparse(arguments)}) is called with {called}"
    if name == _AUTO_COMPLETE and not decorators:
        text += "; is there a @staticmethod missing?"
    yield text


def _has_yield(method: _FunctionNode) -> bool:
    waiting: list[ast.AST] = list(method.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, _FunctionNode | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)
    return False


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        signal.alarm(_TIMEOUT_S)
        path = os.fsdecode(bytes.fromhex(line.strip()))
        try:
            rows = list(findings(path))
        except OSError as error:
            rows = [("problem", 0, 0, str(error))]
        except (RecursionError, MemoryError):
            rows = [("warning", 0, 0, "the file is not looked into: it is nested too deeply")]
        sys.stdout.write(json.dumps(rows) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
