"""Every problem of a repository, found without loading a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from zmqtriton.repository.checking import Rules, check_model, check_repository

GOOD = """backend: "python"
input [ { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
ENSEMBLE = """platform: "ensemble"
input [ {{ name: "X" data_type: TYPE_{0} dims: [ 1 ] }} ]
output [ {{ name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }} ]
ensemble_scheduling {{
  step [ {{
    model_name: "{1}"
    model_version: -1
    input_map {{ key: "A" value: "X" }}
    output_map {{ key: "B" value: "Y" }}
  }} ]
}}
"""


def write(root: Path, name: str, config: str, model: str = "") -> Path:
    (root / name / "1").mkdir(parents=True)
    (root / name / "1" / "model.py").write_text(model)
    (root / name / "config.pbtxt").write_text(config)
    return root / name


def told(directory: Path, rules: Rules | None = None) -> list[tuple[int, str, str]]:
    return [(p.line, p.text, p.meant) for p in check_model(directory, rules).problems]


def test_a_good_model_has_no_problem(tmp_path: Path) -> None:
    findings = check_model(write(tmp_path, "m", GOOD))

    assert ([], []) == (findings.problems, findings.warnings)
    assert "m" == findings.config.name


@pytest.mark.row("E22")
def test_all_problems_are_found_in_the_order_of_the_file(tmp_path: Path) -> None:
    config = """name: "n"
backend: "pythn"
max_batch_size: -1
input [ { name: "A" dims: [ 0 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ 1 ] label_filename: "../x" } ]
instance_group [ { kind: KIND_GPU } ]
model_repository_agents { agents [ { name: "checksums" } ] }
"""
    model = write(tmp_path, "m", config)

    assert [
        (1, "unexpected directory name 'm' for model 'n', directory name must equal model name"),
        (
            2,
            "unable to find backend library for backend 'pythn', try specifying runtime on the "
            "model configuration.",
        ),
        (3, "'max_batch_size' must be non-negative value for m"),
        (4, "model input 'A' must specify 'data_type' for m"),
        (
            4,
            "model input 'A' dimension must be integer >= 1, or -1 to indicate a variable-size "
            "dimension for m",
        ),
        (5, "label file path '../x' for output 'B' in model 'm' is outside model directory"),
        (6, "instance group m_0 of model m has kind KIND_GPU but no GPUs are available"),
        (
            7,
            "unable to find 'libtritonrepoagent_checksums.so' for repo agent 'checksums', "
            "searched: /opt/tritonserver/repoagents",
        ),
    ] == [(line, text) for line, text, _ in told(model)]


def test_unknown_names_do_not_hide_what_else_is_wrong(tmp_path: Path) -> None:
    model = write(tmp_path, "m", GOOD + "max_batch_sizes: 2\nmax_batch_size: -1\nnonsense: 1\n")

    found = check_model(model).problems

    assert [(4, "max_batch_size"), (5, ""), (6, "")] == [(p.line, p.meant) for p in found]
    assert all(p.path == str(model / "config.pbtxt") for p in found)


def test_a_text_that_cannot_be_read_is_one_problem(tmp_path: Path) -> None:
    model = write(tmp_path, "m", 'backend: "python"\ninput [ {')

    (problem,) = check_model(model).problems

    assert (2, 9, 'Expected "}".') == (problem.line, problem.column, problem.detail)


def test_a_model_that_completes_its_configuration_may_leave_it_open(tmp_path: Path) -> None:
    config = 'backend: "python" input { name: "A" }'
    closed = write(tmp_path, "closed", config)
    opened = write(tmp_path, "opened", config, "def auto_complete_config(): ...")

    assert [] == told(opened)
    assert 2 == len(told(closed))
    assert 2 == len(told(opened, Rules(auto_complete=False)))


def test_files_and_versions_are_looked_for(tmp_path: Path) -> None:
    labels = GOOD.replace('"B"', '"B" label_filename: "l.txt"')
    model = write(tmp_path, "m", labels + "version_policy { specific { versions: [ 1, 9 ] } }")
    (model / "1" / "model.py").unlink()
    (model / "01").mkdir()

    findings = check_model(model)

    assert [
        f"Python model file not found in '{model}/1/model.py'",
        f"failed to open text file for read {model}/l.txt: No such file or directory",
    ] == sorted(p.text for p in findings.problems)
    assert [
        "ignore version directory '01' which contains leading zeros in its directory name",
        "version 9 is specified for model 'm', but the version directory is not present",
    ] == findings.warnings


def test_an_ensemble_is_compared_with_what_it_calls(tmp_path: Path) -> None:
    write(tmp_path, "member", GOOD)
    write(tmp_path, "good", ENSEMBLE.format("FP32", "member"))
    write(tmp_path, "lost", ENSEMBLE.format("FP32", "membre"))
    write(tmp_path, "unfit", ENSEMBLE.format("INT8", "member"))

    found = check_repository(tmp_path)

    assert ["good", "lost", "member", "unfit"] == list(found)
    assert [] == found["good"].problems
    (lost,) = found["lost"].problems
    assert (6, "member") == (lost.line, lost.meant)
    (unfit,) = found["unfit"].problems
    assert 8 == unfit.line
    assert "inconsistent data type" in unfit.text
