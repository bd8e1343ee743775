"""Calls the cases of a script one after another and writes what came of each."""

import json
import logging
from pathlib import Path


def played(path, cases):
    """Every public function of `cases`, in the order of the file."""
    logging.disable(logging.CRITICAL)
    outcomes = {}
    for case in cases:
        outcomes[case.__name__] = outcome(case)
        Path(path).write_text(json.dumps(outcomes, indent=1), encoding="utf-8")


def outcome(case, *arguments, **more):
    try:
        return case(*arguments, **more)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        return {"raises": type(error).__name__, "text": str(error)}
