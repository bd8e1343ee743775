"""Finds errors in a file of functions for `zmqtriton check`, by importing it in a subprocess.

With permission, the subprocess also calls each function with its example, because only a call shows
a result that does not fit the return hint.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from zmqtriton.sdk.models import Problem, Severity, pbtxt
from zmqtriton.sdk.models import model as stub_model
from zmqtriton.sdk.process import prctl
from zmqtriton.sdk.wire import InternalError, ZmqTritonError, shown
from zmqtriton_extras.authoring.testing import InferenceRequest, load_model
from zmqtriton_extras.functions.bodies import read
from zmqtriton_extras.functions.example_requests import example_for
from zmqtriton_extras.functions.exporting import config_of
from zmqtriton_extras.functions.interface import Interface
from zmqtriton_extras.functions.sources import models_in
from zmqtriton_extras.functions.taken_names import problems_of

_WITHIN_S = 120
_CALL_WITHIN_S = 10
#: The model.py that runs a function of another file.
_CODE = """
from zmqtriton_extras.functions.backend import model

class TritonPythonModel(model.TritonPythonModel):
    file = {file!r}
"""
#: Matches the errors of results that do not fit the return hint.
_ANSWER = re.compile("^TypeError: (?=output '|the function must return|step must return)")
#: Matches the errors of exceptions, other than texts of Failed.
_EXCEPTION = re.compile(r"[A-Za-z_]\w*: ")


def problems(path: Path, may_call: bool) -> Iterator[Problem]:
    """Yield the problems of a file's functions with their lines."""
    names = models_in(path)
    yield from (replace(each, path=str(path)) for each in problems_of(names))
    if not names:
        return
    command = [sys.executable, "-m", __name__, str(path.absolute()), *["call"][:may_call]]
    what = "its import, or a call," if may_call else "its import"
    try:
        done: Any = subprocess.run(
            command,
            capture_output=True,
            timeout=_WITHIN_S,
            check=False,
            preexec_fn=prctl.die_with_parent,
        )
        last = [(0, f"{what} ends the process", True)] if done.returncode else []
    except subprocess.TimeoutExpired as error:
        done, last = error, [(0, f"{what} takes more than {_WITHIN_S} s", False)]
    for line, text, is_wrong in (*map(json.loads, (done.stdout or b"").splitlines()), *last):
        severity = Severity.ERROR if is_wrong else Severity.WARNING
        yield Problem(text, severity=severity, path=str(path), line=line, column=int(line > 0))


def _rows(path: str, *, may_call: bool) -> Iterator[tuple[int, str, bool]]:
    """Yield a line number, a text and whether it is an error, not a warning, for each problem."""
    stub_model.provide_api()
    # only now: they need the API of models
    from zmqtriton_extras.functions.backend import api, model, signature
    from zmqtriton_extras.functions.backend.kinds import HintError

    try:
        module = model.import_file(path)
    except Exception as error:  # noqa: BLE001 - the file may raise anything
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno or 0 for frame in frames if frame.filename == path]
        is_wrong = not isinstance(error, ImportError)  # the model's own Python may have it
        yield (lines or [0])[-1], f"{type(error).__name__}: {error}", is_wrong
        return
    for each in dict.fromkeys(signature.functions_of(module)):
        line, name = inspect.getsourcelines(each)[1], each.__name__
        try:
            interface = Interface(signature.describe(signature.read(each)))
        except HintError as error:
            yield line, f"{name}: {error}", True
            continue
        example = example_for(interface.input, interface.examples) if may_call else None
        if example is not None:
            text = _failure(Path(path), getattr(each, api.MARK).name, interface, example)
            words = f"{name}, called with {shown(json.dumps(example))}: {_ANSWER.sub('', text)}"
            yield from [(line, words, bool(_ANSWER.match(text)))][: len(text)]


def _failure(file: Path, name: str, interface: Interface, example: Any) -> str:
    """Call a function with its example, and return the error; "" if it succeeds or refuses."""
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place, name)
        (directory / "1").mkdir(parents=True)
        (directory / "1" / "model.py").write_text(_CODE.format(file=str(file)), "utf-8")
        (directory / "config.pbtxt").write_text(pbtxt.to_text(config_of(file, name)), "utf-8")
        request = read(interface, "", json.dumps(example).encode())
        try:
            with load_model(directory) as model:
                return _error_of(model.stream(InferenceRequest(**request._asdict())))
        except Exception as error:  # noqa: BLE001 - its __init__ may raise anything
            return f"{type(error).__name__}: {error}"


def _error_of(answers: Any) -> str:
    """Return the text of an exception in a call; "" for a text that the function has chosen."""
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(_CALL_WITHIN_S)
    try:
        with contextlib.closing(answers):
            next(answers, None)
    except ZmqTritonError as error:
        is_exception = isinstance(error, InternalError) and _EXCEPTION.match(error.text)
        return error.text if is_exception else ""
    finally:
        signal.alarm(0)
    return ""


def _too_long(number: int, frame: Any) -> None:
    raise TimeoutError(f"the call takes more than {_CALL_WITHIN_S} s")


if __name__ == "__main__":
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # for what the file prints
    for row in _rows(sys.argv[1], may_call="call" in sys.argv[2:]):
        report.write(json.dumps(row) + "\n")
        report.flush()
