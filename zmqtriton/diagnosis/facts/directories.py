"""The directories of models, checked by child processes that can be left behind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zmqtriton.diagnosis.facts.silence import output_within
from zmqtriton.findings import Finding, Severity

#: Module of the command that checks a directory.
_CHECK = "zmqtriton.diagnosis.check"


class Directories:
    """Checks models in repositories, except in repositories that do not answer."""

    def __init__(self, repositories: Sequence[str]) -> None:
        self._repositories = repositories
        #: Repositories that did not answer in time; no more checks are made there.
        self.silent: list[str] = []

    def check(self, model: str, within_s: float) -> tuple[list[str], list[Finding]]:
        """Return the model's directories that can be read, and the errors in them.

        Each repository has `within_s` seconds to answer.
        """
        places: list[str] = []
        problems: list[Finding] = []
        for repository in self._repositories:
            if repository in self.silent:
                continue
            place = Path(repository) / model
            report = _check(place, within_s)
            if report is None:
                self.silent.append(repository)
            elif model in report["models"]:
                places.append(str(place))
                problems += [
                    Finding(**{**row, "severity": Severity.ERROR})
                    for row in report["findings"]
                    if row["model"] == model and row["severity"] == "error"
                ]
        return places, problems


def _check(place: Path, within_s: float) -> dict[str, Any] | None:
    """Return the report of `zmqtriton check` in a child; None if it does not end in time."""
    written = output_within(within_s, "-m", _CHECK, "--json", str(place))
    nothing: dict[str, Any] = {"models": [], "findings": []}
    return None if written is None else json.loads(written) if written else nothing
