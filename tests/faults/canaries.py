"""Canaries under a steady load: versions that are tried, promoted and aborted, and what failed."""

from __future__ import annotations

import re
import shutil
from typing import Any

from tests.faults.stamps import MODEL, SteadyLoad
from tests.support.server import Server
from tests.support.waiting import eventually

#: For the begin of execute.
BROKEN = "        raise pb_utils.TritonModelException('broken on purpose')\n"


def canary(server: Server, what: str = "", document: Any = None, model: str = MODEL) -> Any:
    """Call the canary of a model over HTTP; no document asks only."""
    status, answer = server.request_json(f"/v2/models/{model}/canary{what}", document)
    assert status == 200, answer
    return answer


def add_version(server: Server, *, begins_with: str = "", model: str = MODEL) -> int:
    """Copy the newest version to the next number, which is its stamp; return it.

    Its execute begins with these lines.
    """
    directory = server.repository / model
    newest = max(int(path.name) for path in directory.iterdir() if path.name.isdecimal())
    code = directory / str(newest) / "model.py"
    text = re.sub(r"(?m)^STAMP = .*$", f"STAMP = {newest + 1}", code.read_text())
    before = r"(?s)(InferenceResponse\]:\n).*?(        responses = \[\]\n)"
    text = re.sub(before, lambda match: match[1] + begins_with + match[2], text)
    new = directory / str(newest + 1)
    shutil.copytree(code.parent, new, ignore=shutil.ignore_patterns("__pycache__"))
    (new / "model.py").write_text(text)
    return newest + 1


def versions_of(load: SteadyLoad, after: int = 0) -> set[int]:
    """Return the versions that have answered, as their stamps say."""
    return {answer.stamps[0] for answer in load.answers[after:] if answer.stamps}


def try_and_end(server: Server, load: SteadyLoad, end: str, **settings: Any) -> int:
    """Try a new version, and promote or abort it; return it."""
    version = add_version(server)
    canary(server, document={"version": version, "weight": 50, **settings})
    eventually(lambda: version in versions_of(load), 30, "an answer of the canary")
    ended = canary(server, f"/{end}", {})
    assert version == ended["canary"]
    count = len(load.answers)
    stays = version if end == "promote" else ended["stable"]
    eventually(lambda: len(load.answers) > count + 40, 30, "more answers")
    assert {stays} == versions_of(load, count + 20), "all go to one"
    eventually(lambda: canary(server)["phase"] in ("PROMOTED", "ABORTED"), 60, "the other's end")
    return version
