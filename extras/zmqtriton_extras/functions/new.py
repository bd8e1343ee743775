"""`zmqtriton new NAME`: writes a function and its test into the current directory."""

from __future__ import annotations

import keyword
import sys
from pathlib import Path

from zmqtriton_extras.functions.backend.names import model_name
from zmqtriton_extras.routes.names import OWN_PATHS

_FUNCTION = '''\
"""A function is a model, and its hints are the interface."""

from zmqtriton import model


@model  # or @model(batch=16, instances=2)
def {name}(text: str, times: int = 2) -> str:
    """Repeat a text in capitals."""
    return " ".join([text.upper()] * times)
'''
_TEST = '''\
"""The function {name} without a server: pytest test_{name}.py"""

from {name} import {name}


def test_{name}():
    assert {name}("hello") == "HELLO HELLO"
'''
_GUIDE = """
{name}.py{pad}the function
test_{name}.py{less}a test, which needs no server

Test it (needs: pip install pytest), then serve it; --reload loads it again when it is saved:

  pytest test_{name}.py
  zmqtriton run {name}.py --reload

Call it from another terminal, or in a form at http://localhost:8000:

  curl localhost:8000/{name} -d '{{"text": "hello", "times": 3}}'

"""


def run_new(words: list[str]) -> int:
    """Write the files and return the exit status."""
    [name] = words
    files = {Path(f"{name}.py"): _FUNCTION, Path(f"test_{name}.py"): _TEST}
    problem = _problem(name) or "".join(
        f"{each} is there already; " for each in files if each.exists()
    )
    if problem:
        sys.stderr.write(f"error: {problem.removesuffix('; ')}; nothing was written\n")
        return 1
    for path, text in files.items():
        path.write_text(text.format(name=name), "utf-8")
    sys.stdout.write(_GUIDE.format(name=name, pad=" " * 8, less=" " * 3))
    return 0


def _problem(name: str) -> str:
    is_taken = keyword.iskeyword(name) or name in {*sys.stdlib_module_names, *OWN_PATHS}
    if is_taken or name == "zmqtriton" or name != model_name(name):
        return (
            f"'{name}': a function's name has small letters, and is no word or module of Python, "
            "and no path of the server"
        )
    return ""
