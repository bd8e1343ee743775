"""The check finds something wrong with a model exactly where a server's load of it fails."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conformance.play import without_our_sentences
from tests.conformance.repositories import Repository
from tests.conformance.tables import configs, configs_strict
from tests.support.needs import ROOT
from zmqtriton.config.errors import Problem
from zmqtriton.options import parse
from zmqtriton_standard.tools.checking.command import check_all

pytestmark = pytest.mark.slow

RECORDED = ROOT / "tests" / "conformance" / "recorded"


def recorded(name: str) -> dict[str, Any]:
    """Return what Triton has answered, or, where we differ on purpose, what we do."""
    answers = json.loads((RECORDED / f"{name}.json").read_text("utf-8"))
    intended = json.loads((RECORDED / "intended.json").read_text("utf-8"))
    return {case: (intended.get(case) or answer)[0] for case, answer in answers.items()}


def is_explained(error: str, problems: list[Problem], place: Path) -> bool:
    """Return whether one of the problems is the reason that the load gave.

    Why a member failed is part of it, in the words of its own load.
    """
    texts = [
        without_our_sentences(problem.text.replace(str(place), "@REPOSITORY@"))
        for problem in problems
    ]
    return any(text.partition(" loading failed with error:")[0] in error for text in texts)


@pytest.mark.parametrize("table", [configs, configs_strict])
def test_what_a_load_refuses_is_found_with_its_reason(table: ModuleType, tmp_path: Path) -> None:
    name = table.__name__.rpartition(".")[2]
    Repository(name, table.MODELS, ()).write(tmp_path / "models")
    place = tmp_path / "models"

    findings = check_all(parse([f"--model-repository={place}", *table.OPTIONS])).models

    wrong = []
    for model, answer in recorded(name).items():
        if model not in findings:
            continue  # loads the directory of another case with a configuration of its own
        # What this machine lacks, GPUs, keeps a load from succeeding and is a warning here.
        lacking = [p for p in findings[model].warnings if p.is_host_specific]
        problems = [*findings[model].errors, *lacking]
        if (answer["status"] == 200) == bool(problems):
            wrong.append(f"{model}: {answer.get('error', 'loads')} but {problems}")
        elif problems and not is_explained(answer["error"], problems, place):
            wrong.append(f"{model}: {answer['error']} is not among {problems}")
    assert [] == wrong
