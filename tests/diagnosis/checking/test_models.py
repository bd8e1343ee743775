"""Every problem of a model's directory, found without loading it."""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from zmqtriton.config.backends import backend_places
from zmqtriton.diagnosis.rules.models import CheckOptions, check_model

GOOD = """backend: "python"
input [ { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""


def write(root: Path, name: str, config: str, model: str = "") -> Path:
    (root / name / "1").mkdir(parents=True)
    (root / name / "1" / "model.py").write_text(model)
    (root / name / "config.pbtxt").write_text(config)
    return root / name


def errors_of(directory: Path, rules: CheckOptions | None = None) -> list[tuple[int, str, str]]:
    return [(p.line, p.text, p.suggestion) for p in check_model(directory, rules).errors]


@pytest.mark.row("E22")
@pytest.mark.extra("backends")
def test_all_problems_are_found_in_the_order_of_the_file(tmp_path: Path) -> None:
    config = """name: "n"
backend: "pythn"
max_batch_size: -1
input [ { name: "A" dims: [ 0 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ 1 ] label_filename: "../x" } ]
instance_group [ { kind: KIND_GPU } ]
model_repository_agents { agents [ { name: "checksums" } ] }
version_policy { all { } }
"""
    model = write(tmp_path, "m", config)
    shutil.copytree(model / "1", model / "2")  # which has the same problems

    assert [
        (1, "unexpected directory name 'm' for model 'n', directory name must equal model name"),
        (
            2,
            "unable to find backend library for backend 'pythn', try specifying runtime on the "
            "model configuration. This server has the backends fil, onnxruntime, openvino, python, "
            "pytorch, tensorflow, tensorrt, vllm, and those in --backend-directory.",
        ),
        (3, "'max_batch_size' must be non-negative value for m"),
        (4, "model input 'A' must specify 'data_type' for m"),
        (
            4,
            "model input 'A' dimension must be integer >= 1, or -1 to indicate a variable-size "
            "dimension for m",
        ),
        (5, "label file path '../x' for output 'B' in model 'm' is outside model directory"),
        (
            7,
            "unable to find 'libtritonrepoagent_checksums.so' for repo agent 'checksums', "
            "searched: /opt/tritonserver/repoagents",
        ),
    ] == [(line, text) for line, text, _ in errors_of(model)]
    (warning,) = check_model(model).warnings
    text = "instance group m_0 of model m has kind KIND_GPU but no GPUs are available"
    assert (6, text) == (warning.line, warning.text)


STREAMS = 'parameters { key: "MAX_STREAMS" value { string_value: "%s" } }\n'


@pytest.mark.parametrize("text", ["0", "-1", "many", "65537", ""])
def test_a_bound_of_streams_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    decoupled = "model_transaction_policy { decoupled: true }\n"
    [(line, problem, _)] = errors_of(write(tmp_path, "m", GOOD + decoupled + STREAMS % text))

    said = f"MAX_STREAMS is '{text}', which is no whole number from 1 to 65536"
    assert (5, said) == (line, problem)


def test_streams_are_bounded_where_there_are_any(tmp_path: Path) -> None:
    sequences = write(tmp_path, "s", GOOD + "sequence_batching {}\n" + STREAMS % 2)
    plain = write(tmp_path, "p", GOOD + STREAMS % 2)
    may_be_decoupled = write(tmp_path, "c", GOOD + STREAMS % 2, "def auto_complete_config(): 0")

    [(_, refused, _)] = errors_of(sequences)
    [warning] = check_model(plain).warnings

    assert "remove MAX_STREAMS: it is not for sequence_batching" in refused
    assert "MAX_STREAMS means nothing to model p, which is not decoupled" == warning.text
    assert [] == check_model(may_be_decoupled).problems


PARTS = 'parameters { key: "SPLIT_BATCHES" value { string_value: "%s" } }\n'


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ("sequence_batching {}", "sequence_batching, where a request is one step"),
        ("model_transaction_policy { decoupled: true }", "decoupled models, whose responses have"),
        (
            'input { name: "R" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true }',
            "allow_ragged_batch, whose first axis is no batch",
        ),
        (
            'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }',
            "inputs on a GPU (FORCE_CPU_ONLY_INPUT_TENSORS is no)",
        ),
    ],
)
def test_batches_are_split_where_that_has_a_meaning(tmp_path: Path, more: str, text: str) -> None:
    config = GOOD + "max_batch_size: 4\n" + PARTS % "true"
    refused = write(tmp_path, "r", f"{config}{more}\n")
    unsplit = write(tmp_path, "u", f"{config}{more}\n".replace('"true"', '"false"'))

    assert [] == errors_of(write(tmp_path, "m", config)) == errors_of(unsplit)
    [(_, problem, _)] = errors_of(refused)
    assert problem.startswith(f"remove SPLIT_BATCHES: it is not for {text}")


FIT = 'parameters { key: "%s" value { string_value: "%s" } }\n'
BATCHES = "max_batch_size: 4\ndynamic_batching {}\n"
COST = FIT % ("BATCH_COST", "elements(A)") + FIT % ("MAX_BATCH_COST", "64")


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (
            BATCHES + FIT % ("BATCH_LIKE", "size(A)"),
            "BATCH_LIKE is 'size(A)', which is not shape(INPUT) or value(INPUT)",
        ),
        (BATCHES + FIT % ("BATCH_LIKE", "shape(B)"), "BATCH_LIKE measures 'B', but the inputs"),
        (BATCHES + FIT % ("BATCH_COST", "bytes(A)"), "BATCH_COST needs MAX_BATCH_COST"),
        (BATCHES + FIT % ("MAX_BATCH_COST", "9"), "MAX_BATCH_COST needs BATCH_COST"),
        (BATCHES + COST.replace("64", "0"), "MAX_BATCH_COST is '0', which is no whole number"),
        ("max_batch_size: 4\n" + COST, "BATCH_COST means nothing without dynamic_batching"),
        ("max_batch_size: 4\nsequence_batching {}\n" + COST, "it is not for sequence_batching"),
        (
            BATCHES + STREAMS % 2 + FIT % ("BATCH_LIKE", "shape(A)"),
            "remove BATCH_LIKE: it is not for MAX_STREAMS, where requests join one by one",
        ),
    ],
)
def test_measures_of_batches_are_checked(tmp_path: Path, more: str, text: str) -> None:
    good = BATCHES + COST + FIT % ("BATCH_LIKE", "shape(A)")

    assert [] == errors_of(write(tmp_path, "m", GOOD + good))
    assert text in errors_of(write(tmp_path, "odd", GOOD + more))[0][1]


AUTO, TARGET = FIT % ("BATCH_DELAY", "auto"), FIT % ("BATCH_TARGET", "p99 200 ms")


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (BATCHES + AUTO.replace("auto", "5 ms"), "BATCH_DELAY is '5 ms', which is not auto; a fix"),
        (BATCHES + AUTO + TARGET.replace("200 ms", "soon"), "BATCH_TARGET is 'p99 soon', which is"),
        (BATCHES + TARGET, 'BATCH_TARGET needs BATCH_DELAY: "auto"'),
        (
            BATCHES.replace("{}", "{ max_queue_delay_microseconds: 9 }") + AUTO,
            "BATCH_DELAY chooses the delay: remove it, or max_queue_delay_microseconds",
        ),
        ("max_batch_size: 4\n" + AUTO, "BATCH_DELAY means nothing without dynamic_batching"),
        ("max_batch_size: 4\nsequence_batching {}\n" + AUTO, "it is not for sequence_batching"),
        (BATCHES + STREAMS % 2 + AUTO, "remove BATCH_DELAY: it is not for MAX_STREAMS"),
    ],
)
def test_a_chosen_delay_is_checked(tmp_path: Path, more: str, text: str) -> None:
    assert [] == errors_of(write(tmp_path, "m", GOOD + BATCHES + AUTO + TARGET))
    assert text in errors_of(write(tmp_path, "odd", GOOD + more))[0][1]


def test_a_word_that_neither_splits_nor_does_not_is_refused(tmp_path: Path) -> None:
    [(_, problem, _)] = errors_of(write(tmp_path, "m", GOOD + PARTS % "perhaps"))

    assert "SPLIT_BATCHES is 'perhaps', which is neither true nor false" == problem


def test_a_text_that_cannot_be_read_is_one_problem(tmp_path: Path) -> None:
    (problem,) = check_model(write(tmp_path, "m", 'backend: "python"\ninput [ {')).errors

    assert (2, 9, 'Expected "}".') == (problem.line, problem.column, problem.detail)


def test_files_and_versions_are_looked_for(tmp_path: Path) -> None:
    labels = GOOD.replace('"B"', '"B" label_filename: "l.txt"')
    model = write(tmp_path, "m", labels + "version_policy { specific { versions: [ 1, 9 ] } }")
    (model / "1" / "model.py").unlink()
    (model / "01").mkdir()

    findings = check_model(model)

    assert [
        f"Python model file not found in '{model}/1/model.py'",
        f"failed to open text file for read {model}/l.txt: No such file or directory",
    ] == sorted(p.text for p in findings.errors)
    assert [
        "ignore version directory '01' which contains leading zeros in its directory name",
        "version 9 is specified for model 'm', but the version directory is not present",
    ] == [warning.text for warning in findings.warnings]


def test_values_and_names_of_parameters_are_looked_at(tmp_path: Path) -> None:
    parameters = "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
        for key, value in [
            ("FORCE_CPU_ONLY_INPUT_TENSOR", "yes"),
            ("FORCE_CPU_ONLY_INPUT_TENSORS", "true"),
            ("max_load_seconds", "soon"),
            ("execution_env_path", "x"),
            ("threshold", "0.5"),
            ("max_memory_bytes", "much"),
            ("cpu_weigth", "200"),
            ("DETACHED_CALLS", "true"),
            ("unload_idle_after_second", "60"),
            ("CUDA_VISIBLE_DEVICES", "Instance"),
        ]
    )

    findings = check_model(write(tmp_path, "m", GOOD + parameters))

    assert [
        (5, "Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: true'"),
        (6, "max_load_seconds is 'soon', which is no number of seconds"),
        (9, "max_memory_bytes is 'much', which is no number of bytes, such as 1048576, 512M or 2G"),
        (11, "DETACHED_CALLS is 'true', which is neither yes nor no"),
    ] == [(p.line, p.text) for p in findings.errors]
    assert [
        (4, "FORCE_CPU_ONLY_INPUT_TENSORS"),
        (7, "EXECUTION_ENV_PATH"),
        (10, "cpu_weight"),
        (12, "unload_idle_after_seconds"),
        (13, ""),
    ] == [(p.line, p.suggestion) for p in findings.warnings]


def test_files_of_samples_and_states_must_be_there(tmp_path: Path) -> None:
    config = """model_warmup {
  name: "w" batch_size: 1
  inputs { key: "A" value { data_type: TYPE_FP32 dims: 1 input_data_file: "a" } }
}
"""
    model = write(tmp_path, "m", GOOD + config)

    (problem,) = check_model(model).errors

    assert 6 == problem.line
    expected = f"failed to open text file for read {model}/warmup/a: No such file or directory"
    assert expected == problem.text


@pytest.mark.parametrize("odd", ["pipe", "directory", "huge", "circle", "device"])
@pytest.mark.parametrize("name", ["config.pbtxt", "1/model.py", "labels.txt"])
def test_what_is_no_plain_file_neither_hangs_nor_kills(tmp_path: Path, odd: str, name: str) -> None:
    model = write(tmp_path, "m", GOOD.replace('"B"', '"B" label_filename: "labels.txt"'))
    path = model / name
    path.unlink(missing_ok=True)
    if odd == "pipe":
        os.mkfifo(path)
    elif odd == "directory":
        path.mkdir()
    elif odd == "circle":
        path.symlink_to(path)
    elif odd == "device":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(1 << 30)

    findings = check_model(model)

    # A large model.py is nothing that is wrong; it is not looked into.
    assert findings.problems or (odd, name) == ("huge", "1/model.py")


def test_what_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write(tmp_path, "m", GOOD)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(model))

    monkeypatch.setattr("zmqtriton.diagnosis.rules.models.find_config", refuse)

    assert [f"[Errno 13] Permission denied: '{model}'"] == [t for _, t, _ in errors_of(model)]


@pytest.mark.addons
def test_what_a_model_asks_of_its_python_is_looked_for(tmp_path: Path) -> None:
    value = 'parameters {{ key: "{}" value {{ string_value: "{}" }} }}'
    (tmp_path / "broken.tar.gz").write_bytes(b"no archive")
    parameters = {
        "path": ("EXECUTION_ENV_PATH", "/nowhere"),
        "archive": ("EXECUTION_ENV_PATH", f"{tmp_path}/broken.tar.gz"),
        "named": ("PYTHON_EXECUTABLE", "python2.99"),
        "program": ("PYTHON_EXECUTABLE", f"{tmp_path}/broken.tar.gz"),
        "build": ("PYTHON_REQUIREMENTS", "yes"),
    }

    findings = {
        name: check_model(write(tmp_path, name, GOOD + value.format(*parameter)))
        for name, parameter in parameters.items()
    }

    texts = {name: [p.text for p in one.errors] for name, one in findings.items()}
    assert ["Failed to get the canonical path for /nowhere."] == texts["path"]
    parts = {
        "archive": "cannot be unpacked",
        "named": "there is no such interpreter on PATH",
        "program": "must be a program that can be run",
        "build": "has no requirements.txt or pyproject.toml",
    }
    assert [] == [name for name, part in parts.items() if part not in texts[name][0]]
    assert all(4 == one.errors[0].line for one in findings.values())


@pytest.mark.addons
def test_an_environment_that_cannot_be_built_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "zmqtriton_standard.environments.interpreters.shutil.which", lambda *_, **__: None
    )
    model = write(
        tmp_path,
        "m",
        GOOD + 'parameters { key: "PYTHON_REQUIREMENTS" value { string_value: "yes" } }',
    )
    (model / "requirements.txt").write_text("numpy\n")

    assert any("without uv" in problem.text for problem in check_model(model).warnings)


@pytest.mark.addons
def test_an_archive_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "activate").write_text("VIRTUAL_ENV=/old")
    (tmp_path / "env" / "bin" / "python").symlink_to(sys.executable)
    value = 'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{}" }} }}'
    texts = {}
    for name, more in {"whole": ["pyvenv.cfg"] * 2, "none": [], "absent": None}.items():
        path = tmp_path / f"{name}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            if more is not None:
                archive.add(tmp_path / "env", ".")
            for member in more or ():
                archive.addfile(tarfile.TarInfo(member))
        model = write(tmp_path, name, GOOD + value.format(path))
        texts[name] = [p.text for p in check_model(model).errors]

    assert [] == texts["whole"]
    assert [True] == ["'bin/python' is a link to" in text for text in texts["none"]]
    assert [f"Path {tmp_path}/absent.tar.gz/bin/activate does not exist."] == [
        text.partition(" The ")[0] for text in texts["absent"]
    ]
    assert [] == list((tmp_path / "temporary").iterdir())


@pytest.mark.addons
def test_lines_that_no_installer_understands_are_told(tmp_path: Path) -> None:
    build = 'parameters { key: "PYTHON_REQUIREMENTS" value { string_value: "yes" } }'
    model = write(tmp_path, "m", GOOD + build)
    (model / "requirements.txt").write_text(
        "# ours\nnumpy>=1.26,<3\ntorch[cpu] == 2.4 ; python_version < '3.13'\n"
        "-r more.txt\ngit+https://example.org/x.git\n./local\nx @ https://example.org/x.whl\n"
        "pkg==1 \\\n  --hash=sha256:00\nnumpy => 2\nimport torch\n"
    )

    findings = check_model(model)

    assert [] == findings.errors
    path = str(model / "requirements.txt")
    assert [(path, 10, 1, "numpy => 2"), (path, 11, 1, "import torch")] == [
        (p.path, p.line, p.column, p.text.split("'")[1]) for p in findings.warnings
    ]


@pytest.mark.extra("backends")
def test_a_model_of_a_framework_is_checked_without_the_framework(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.onnx").write_bytes(b":\0")
    rules = CheckOptions(backend_places=backend_places(str(tmp_path / "none")))

    assert [] == errors_of(tmp_path / "m", rules)

    monkeypatch.setattr("zmqtriton.diagnosis.rules.models.find_spec", lambda name: None)
    (warning,) = check_model(tmp_path / "m", rules).warnings
    assert warning.text.startswith("backend 'onnxruntime' needs the module 'onnxruntime', which ")
    assert warning.text.endswith(" -m pip install onnxruntime")

    (tmp_path / "m" / "requirements.txt").write_text("onnxruntime\n")
    assert [] == check_model(tmp_path / "m", replace(rules, may_build=True)).warnings, "its own"

    text = 'backend: "onnxruntime"\ndefault_model_filename: "modle.onnx"'
    (tmp_path / "m" / "config.pbtxt").write_text(text)
    (problem,) = errors_of(tmp_path / "m", rules)
    assert (2, "model.onnx") == (problem[0], problem[2])


@pytest.mark.parametrize("name", ["config.pbtx", "Config.pbtxt", "config.pbtxt.txt", "config.txt"])
def test_a_configuration_with_another_name_is_told(tmp_path: Path, name: str) -> None:
    write(tmp_path, "m", GOOD, "")
    (tmp_path / "m" / "config.pbtxt").rename(tmp_path / "m" / name)

    findings = check_model(tmp_path / "m")

    text = f"'{tmp_path / 'm' / name}' is not read; did you mean 'config.pbtxt'?"
    assert text in [one.text for one in findings.warnings]


@pytest.mark.parametrize(
    "form",
    [
        "instance_group {{ {0} }} instance_group {{ {1} }}",
        "instance_group [ {{ {0} }}, {{ {1} }} ]",
    ],
)
def test_a_count_of_zero_is_told_of_the_group_that_has_it(tmp_path: Path, form: str) -> None:
    write(tmp_path, "m", GOOD + form.format("kind: KIND_CPU", "kind: KIND_CPU\n count: 0"), "")
    lines_before = GOOD.count("\n")

    findings = check_model(tmp_path / "m")

    warning_text = "'count: 0' means the usual number of instances, not none"
    assert [lines_before + 2] == [one.line for one in findings.warnings if one.text == warning_text]


@pytest.mark.parametrize(
    ("config", "size", "has_note"),
    [
        ("instance_group { count: 2 kind: KIND_CPU }", 1 << 30, True),
        ("instance_group { count: 16 kind: KIND_CPU }", 1 << 20, False),
        ("instance_group { count: 1 kind: KIND_CPU }", 1 << 30, False),
        (
            "instance_group { count: 16 kind: KIND_CPU }\n"
            'parameters { key: "INSTANCES" value { string_value: "threads" } }',
            1 << 30,
            False,
        ),
    ],
)
def test_a_large_file_that_several_instances_may_load_is_told(
    tmp_path: Path, config: str, size: int, *, has_note: bool
) -> None:
    write(tmp_path, "m", f"{GOOD}{config}\n", "")
    with (tmp_path / "m" / "1" / "weights.npy").open("wb") as file:
        file.truncate(size)

    notes = check_model(tmp_path / "m").notes

    line, text = (
        GOOD.count("\n") + 1,
        "2 instances loads 1/weights.npy (1,024 MiB), they take 2,048 MiB",
    )
    assert has_note == bool(notes)
    assert all(line == one.line and text in one.text for one in notes)


def test_files_of_a_source_are_not_looked_for(tmp_path: Path) -> None:
    line = 'parameters {{ key: "MODEL_SOURCE" value {{ string_value: "{}" }} }}'
    model = write(tmp_path, "m", f"{GOOD}\n{line.format('hf://org/name')}")
    shutil.rmtree(model / "1")
    assert [] == check_model(model).errors

    config = model / "config.pbtxt"
    config.write_text(config.read_text().replace("hf://org", "/srv"))
    (problem,) = check_model(model).errors
    assert "MODEL_SOURCE is '/srv/name', but must begin with hf:// or" in problem.text
    assert GOOD.count("\n") + 2 == problem.line
