"""The end of a forked stub, in programs of their own; whole servers are in tests/system."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

_ROOTS = os.pathsep.join(sys.path)
_PROGRAM = """
    import sys, threading, time
    from zmqtriton_stub import ending
    shared = frozenset(sys.modules)
    sys.path.append({directory!r})
    import of_model
    ending.end(shared)
    print("returned")
"""


def _end(tmp_path: Path, code: str, **others: str) -> tuple[int, list[str]]:
    """Return the exit status and the lines of a program that imports `of_model` and ends."""
    for name, text in {"of_model": code, **others}.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    program = textwrap.dedent(_PROGRAM).format(directory=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": _ROOTS},
        text=True,
    )
    return done.returncode, done.stdout.splitlines()


def test_exit_functions_and_destructors_run_and_the_importer_s_first(tmp_path: Path) -> None:
    code = """
        import atexit, library
        class Model:
            def __del__(self):
                print("destroyed:", library.text())
        model = Model()
        atexit.register(print, "exit function")
    """
    library = """
        word = "library"
        def text():
            return word
    """

    assert (0, ["exit function", "destroyed: library"]) == _end(tmp_path, code, library=library)


def test_what_was_written_to_an_open_file_is_in_it(tmp_path: Path) -> None:
    code = f"""
        _file = open({str(tmp_path / "output")!r}, "w")
        _file.write("all of it")
    """

    assert (0, []) == _end(tmp_path, code)
    assert "all of it" == (tmp_path / "output").read_text()


def test_what_the_c_library_holds_back_is_written(tmp_path: Path) -> None:
    code = """
        import ctypes
        ctypes.CDLL(None).printf(b"of C")
    """

    assert (0, ["of C"]) == _end(tmp_path, code)


def test_a_destructor_that_raises_keeps_nothing_from_its_end(tmp_path: Path) -> None:
    code = """
        class Model:
            def __del__(self):
                raise ValueError("of the model")
        first, second = Model(), Model()
    """

    status, lines = _end(tmp_path, code)

    assert 0 == status
    assert 2 == lines.count("ValueError: of the model")
    assert "returned" not in lines


@pytest.mark.parametrize(
    "code",
    [
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
        "import zmq\ncontext = zmq.Context()\nsocket = context.socket(zmq.PUB)",
    ],
    ids=["of Python", "of a library"],
)
def test_a_process_with_threads_is_left_to_python(tmp_path: Path, code: str) -> None:
    assert (0, ["returned"]) == _end(tmp_path, code)
