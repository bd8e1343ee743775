"""`zmqtriton check` as it is typed, and loads that fail where it finds something wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conformance.play import without_our_sentences
from tests.conformance.repositories import Repository
from tests.conformance.tables import configs, configs_strict
from tests.diagnosis.checking.test_models import GOOD, write
from tests.diagnosis.checking.test_repositories import MODEL, ensemble
from tests.support.needs import ROOT
from zmqtriton.config.errors import Problem
from zmqtriton.diagnosis.check import check_all
from zmqtriton.main import main
from zmqtriton.options import parse

pytestmark = pytest.mark.slow

MODELS = ROOT / "tests" / "models"


def test_our_own_models_are_clean(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # what tests put beside some models
    monkeypatch.syspath_prepend(str(MODELS.parent / "support"))

    status = main(["check", str(MODELS)])

    assert (0, "0 problems, 0 warnings") == (
        status,
        capsys.readouterr().out.strip().split(", ", 1)[1],
    )


def test_each_problem_is_a_line_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "repo", "m", GOOD + "max_batch_sizes: 2\nmax_batch_size: -1\n", MODEL)
    monkeypatch.chdir(tmp_path)

    assert 1 == main(["check", "repo"])
    assert [
        'repo/m/config.pbtxt:4:1: error: Message type "inference.ModelConfig" has no field named '
        "\"max_batch_sizes\". Did you mean 'max_batch_size'?",
        "repo/m/config.pbtxt:5:17: error: 'max_batch_size' must be non-negative value for m",
        "1 model, 2 problems, 0 warnings",
    ] == capsys.readouterr().out.splitlines()


def test_a_repository_of_broken_models_has_a_line_for_each_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tensor = '        q = pb_utils.get_input_tensor_by_name(request, "INPUT")\n'
    for name, config, code in (
        ("count", GOOD + "instance_group { count: 0 }", MODEL),
        ("import", GOOD, "import torchh\n" + MODEL),
        ("method", GOOD, MODEL.replace("execute", "excute")),
        ("klass", GOOD, MODEL.replace("PythonModel", "PythonModle")),
        ("syntax", GOOD, MODEL.replace("...", "(")),
        ("tensor", GOOD, MODEL.replace("...", "\n" + tensor)),
        ("value", GOOD.replace("TYPE_FP32", "FP32"), MODEL),
    ):
        write(tmp_path, name, config, code)
    (write(tmp_path, "named", GOOD, MODEL) / "config.pbtxt").rename(tmp_path / "named/config.pbtx")
    write(tmp_path, "asks", ensemble("valu"))
    monkeypatch.chdir(tmp_path)

    main(["check", "."])

    *lines, summary = capsys.readouterr().out.splitlines()
    assert "9 models, 5 problems, 5 warnings" == summary
    assert [
        line for line in lines if not re.match(r"[\w./]+(:\d+:\d+)?: (error|warning): ", line)
    ] == []
    assert 10 == len(lines)


def test_the_command_line_of_a_server_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write(tmp_path, "m", 'backend: "pythn"', MODEL)
    (model / "configs").mkdir()
    (model / "configs" / "canary.pbtxt").write_text(GOOD.replace("python", "ours"))
    backends = tmp_path / "backends"
    (backends / "ours").mkdir(parents=True)
    (backends / "ours" / "model.py").write_text(MODEL)
    words = ["check", f"--model-store={model}", "--http-port=8080", "--log-verbose", "1"]

    assert 1 == main(words)
    assert 1 == main([*words, "--model-config-name=canary"])
    assert 0 == main([*words, "--model-config-name=canary", f"--backend-directory={backends}"])
    capsys.readouterr()


def test_json_has_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "m", GOOD + "max_batch_size: -1", MODEL)

    status = main(["check", str(tmp_path), "--json"])

    (finding,) = (document := json.loads(capsys.readouterr().out))["findings"]
    assert (1, ["m"]) == (status, document["models"])
    assert {
        "severity": "error",
        "model": "m",
        "path": str(tmp_path / "m/config.pbtxt"),
        "line": 4,
        "column": 17,
        "text": "'max_batch_size' must be non-negative value for m",
        "detail": "",
        "suggestion": "",
    } == finding


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "--model-repository must be specified"),
        (["/tmp", "--jsn"], "unrecognized option '--jsn'"),
        (["s3://bucket/models"], "only directories are checked"),
    ],
)
def test_misuse_has_a_status_of_its_own(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main(["check", *words])
    assert text in capsys.readouterr().err


def test_names_that_are_no_text_are_printed(tmp_path: Path) -> None:
    write(tmp_path, os.fsdecode(b"m\xff"), "nonsense: 1")
    write(tmp_path, "ü", "nonsense: 1", MODEL)

    done = subprocess.run(
        [sys.executable, "-m", "zmqtriton", "check", str(tmp_path)],
        capture_output=True,
        check=False,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )

    assert 1 == done.returncode
    assert b"/m\\udcff: warning: ignore the directory: its name is not UTF-8" in done.stdout
    assert b"config.pbtxt:1:1: error: " in done.stdout
    assert b"1 model, 1 problem, 1 warning" in done.stdout


def test_who_names_no_directory_is_told_how(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["check"])
    assert "\nUsage: zmqtriton check directory" in capsys.readouterr().err


def test_a_directory_without_models_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["check", str(tmp_path)])
    assert f"there is no model in '{tmp_path}'\n" in capsys.readouterr().out


def test_a_python_file_is_a_model_by_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "scale.py"
    file.write_text(
        "class TritonPythonModel:\n    def exceute(self, requests):\n        return []\n"
    )

    assert 0 == main(["check", str(file)])
    warned = capsys.readouterr().out
    file.write_text("class TritonPythonModel:\n    def execute(self, requests:\n")
    assert 1 == main(["check", str(file)])
    wrong = capsys.readouterr().out
    assert 1 == main(["check", str(tmp_path / "none.py")])

    assert "Is 'exceute' meant to be it?" in warned
    assert warned.endswith("1 model, 0 problems, 1 warning\n")
    assert "scale.py:2:" in wrong
    assert "there is no such file" in capsys.readouterr().out


def test_behind_two_dashes_the_start_of_the_server_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "repo", "m", GOOD, MODEL)
    words = [f"--model-repository={tmp_path}/repo", "--tokens=/no/tokens"]

    without, status = main(["check", *words]), main(["check", "--", *words])

    assert (0, 1) == (without, status)
    assert "error: --tokens=/no/tokens: No such file or directory" in capsys.readouterr().out


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
