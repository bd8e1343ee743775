"""Finds what no server could load in a file of functions, which another process imports for it."""

from __future__ import annotations

import contextlib
import inspect
import json
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from zmqtriton.sdk.models import Problem, Severity
from zmqtriton.sdk.models import model as stub_model
from zmqtriton.sdk.process import prctl
from zmqtriton_extras.functions.sources import models_in
from zmqtriton_extras.functions.taken_names import problems_of

_WITHIN_S = 120


def problems(path: Path) -> Iterator[Problem]:
    """Yield the problems of a file's functions, each with its line."""
    names = models_in(path)
    yield from (replace(each, path=str(path)) for each in problems_of(names))
    if not names:
        return
    command = [sys.executable, "-m", __name__, str(path)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_WITHIN_S,
            check=False,
            preexec_fn=prctl.die_with_parent,
        )
        rows = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        rows = [(0, f"its import takes more than {_WITHIN_S} s", False)]
    except ValueError:
        rows = [(0, "its import ends the process", True)]
    for line, text, is_wrong in rows:
        severity = Severity.ERROR if is_wrong else Severity.WARNING
        yield Problem(text, severity=severity, path=str(path), line=line, column=int(line > 0))


def _rows(path: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the line, the text and True for each error of a file, and False for a warning."""
    stub_model.provide_api()
    # only now: they need the API of models
    from zmqtriton_extras.functions.backend import model, signature
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
        try:
            signature.read(each)
        except HintError as error:
            yield inspect.getsourcelines(each)[1], f"{each.__name__}: {error}", True


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        rows = [*_rows(sys.argv[1])]
    sys.stdout.write(json.dumps(rows))
