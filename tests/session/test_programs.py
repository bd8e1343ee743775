"""Tests start no program that a machine with Python and make may lack, unless they look for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: What make and its shell are nothing without.
GIVEN = frozenset("cat env false make rm sh sleep true".split())
#: What begins a command.
STARTERS = frozenset("run Popen check_call check_output".split())
#: Programs of developers, which `make test` does not run.
ELSEWHERE = ("tests/bench/", "tests/faults/")
#: A call that looks for a program, or its line in a table of programs and packages.
SEARCH = r"""(find_tool|which|_missing)\([^)]*"{0}"|"{0}": "[a-z]"""


def programs(text: str) -> Iterator[tuple[int, str]]:
    """Return the lines where a command begins with a program's name, and that name."""
    tree = ast.parse(text)
    commands = list(_commands(tree))
    names = {"wrapper", *(_name(_first(command)) for command in commands)} - {""}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and names & {_name(target) for target in node.targets}:
            commands.append(node.value)
    for command in commands:
        first = _first(command)
        name = str(first.value) if isinstance(first, ast.Constant) else ""
        if first is not command and re.fullmatch("[a-z/][^ ]*", name):
            yield command.lineno, name


def _commands(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Attribute(ast.Name("subprocess"), starter), [command, *_]):
                if starter in STARTERS:
                    yield command


def _name(node: ast.AST) -> str:
    return getattr(node, "id", getattr(node, "attr", ""))


def _first(command: ast.expr) -> ast.expr:
    while isinstance(command, ast.List | ast.Tuple) and command.elts:
        first = command.elts[0]
        command = first.value if isinstance(first, ast.Starred) else first
    return command


def test_the_search_finds_what_is_started() -> None:
    text = """
subprocess.run(["curl", url], check=True)
subprocess.Popen(("nsenter", *words))
line = ["unshare", "-r"]
subprocess.run(line)
server.wrapper = [*["prlimit"], "--x"]
"""
    assert {"curl", "nsenter", "prlimit", "unshare"} == {name for _, name in programs(text)}


def test_each_program_is_looked_for_by_the_file_that_starts_it() -> None:
    taken_for_granted = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if not str(path.relative_to(ROOT)).startswith(ELSEWHERE)
        for text in [path.read_text("utf-8")]
        if "subprocess" in text or "wrapper" in text
        for line, name in programs(text)
        if Path(name).name not in GIVEN and not re.search(SEARCH.format(re.escape(name)), text)
    ]

    assert [] == taken_for_granted
