"""Settings of processes, and the Python and the environment of models."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.floor.reasons import text_of
from tests.supervisor.machine.test_model_reading import CONFIG, add, parameter, read
from tests.supervisor.readings import Readings
from tests.support.waiting import eventually
from zmqtriton.environments.demand import Environment, variable_overrides
from zmqtriton.options import Options, parse
from zmqtriton.supervisor.machine import capacity, listeners
from zmqtriton.supervisor.machine.directories.runtime import RuntimeDirectory
from zmqtriton.supervisor.machine.policy_reading import read_policy
from zmqtriton.supervisor.machine.process_settings import process_settings
from zmqtriton.supervisor.machine.processes.commands import withheld
from zmqtriton.supervisor.machine.python_settings import PythonSettings, check_settings
from zmqtriton_floor.errors import InvalidArgument, Unsupported

# --------------------------------------------------------------------- python settings
# `--backend-config=python,...`: Triton's texts for what is wrong, and what becomes of the rest.


def settings(*entries: str) -> dict[str, str]:
    options = [f"--backend-config=python,{entry}" for entry in entries]
    return parse(["--model-repository=/m", *options]).backend_settings("python")


@pytest.mark.row("B01", "B02", "B03")
def test_defaults_are_tritons() -> None:
    assert PythonSettings(1 << 20, 1 << 20, 30.0) == PythonSettings.from_backend_config(settings())
    assert PythonSettings(1 << 21, 4096, 7.0) == PythonSettings.from_backend_config(
        settings(
            "shm-default-byte-size=2097152",
            "shm-growth-byte-size=4096",
            "stub-timeout-seconds=7",
        )
    )


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        pytest.param(
            "shm-default-byte-size=1048575",
            "shm-default-byte-size can't be smaller than 4 MiBs",
            id="B01",
        ),
        pytest.param(
            "shm-growth-byte-size=0",
            "shm-growth-byte-size can't be smaller than or equal to zero.",
            id="B02",
        ),
        pytest.param(
            "stub-timeout-seconds=0",
            "stub-timeout-seconds can't be smaller than or equal to zero.",
            id="B03",
        ),
        pytest.param("thread-pool-size=0", "thread-pool-size can't be less than 1.", id="B04"),
        pytest.param(
            "thread-pool-size=x", "thread-pool-size is 'x', which is no number", id="no number"
        ),
    ],
)
@pytest.mark.row("B01", "B02", "B03", "--backend-config")
def test_what_is_wrong_is_the_problem_of_every_python_model(
    tmp_path: Path, entry: str, text: str
) -> None:
    add(tmp_path, "m")
    options = parse([f"--model-repository={tmp_path}", f"--backend-config=python,{entry}"])

    blueprint = Readings(options).read_model("m")

    assert [(text, InvalidArgument.number)] == [
        (text_of(version.problem), getattr(version.problem, "number", 0))
        for version in blueprint.versions.values()  # type: ignore[union-attr]
    ]


@pytest.mark.row("B04", "B05")
def test_the_pool_has_a_least_size_and_the_prefix_a_character() -> None:
    with pytest.raises(InvalidArgument, match=r"^thread-pool-size can't be less than 1\.$"):
        check_settings({"thread-pool-size": "0"})
    with pytest.raises(InvalidArgument, match=r"^shm-region-prefix-name must at least contain"):
        check_settings({"shm-region-prefix-name": ""})
    check_settings({"shm-region-prefix-name": "prefix", "thread-pool-size": "1"})


@pytest.mark.row("B07", "K23")
def test_unknown_settings_are_accepted() -> None:
    options = parse(
        [
            "--model-repository=/m",
            "--backend-config=python,nobody=knows",
            "--backend-config=tensorflow,version=2",
            "--backend-config=default-max-batch-size=2",
        ]
    )

    check_settings(options.backend_settings("python"))

    assert {"nobody": "knows", "default-max-batch-size": "2"} == options.backend_settings("python")
    assert () == options.warnings


@pytest.mark.row("B03")
def test_a_load_may_take_longer_than_the_timeout_but_then_others_need_not_wait() -> None:
    options = parse(["--model-repository=/m", "--backend-config=python,stub-timeout-seconds=7"])

    assert 7.0 == read_policy(options).load_slot_timeout_s


@pytest.mark.row("B14")
def test_a_stub_beside_the_model_is_ignored_with_a_warning(tmp_path: Path) -> None:
    stub = add(tmp_path, "m") / "triton_python_backend_stub"
    stub.write_bytes(b"\x7fELF")

    blueprint = read(tmp_path, "m")

    assert blueprint.versions[1].problem is None
    assert [f"ignore {stub}: a stub for another Python is not needed"] == [
        warning.partition(";")[0] for warning in blueprint.warnings
    ]


@pytest.mark.row("B15")
def test_force_cpu_only_is_yes_or_no(tmp_path: Path) -> None:
    for value in ("yes", "no", "maybe"):
        add(tmp_path, value, parameter("FORCE_CPU_ONLY_INPUT_TENSORS", value))
    add(tmp_path, "none", CONFIG)

    versions = {name: read(tmp_path, name).versions[1] for name in ("yes", "no", "none", "maybe")}

    assert ["", "", "", "Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: maybe'"] == [
        text_of(version.problem).partition(" (at ")[0] for version in versions.values()
    ]
    assert isinstance(versions["maybe"].problem, Unsupported)


@pytest.mark.row("B20")
def test_the_file_of_the_model_can_be_named_and_must_be_python(tmp_path: Path) -> None:
    named = 'default_model_filename: "{}"'
    for name, line in (
        ("usual", ""),
        ("other", named.format("other.py")),
        ("missing", named.format("missing.py")),
        ("text", named.format("model.txt")),
    ):
        (add(tmp_path, name, CONFIG + line) / "1" / "other.py").touch()

    versions = {n: read(tmp_path, n).versions[1] for n in ("usual", "other", "missing", "text")}

    assert [f"{tmp_path}/usual/1/model.py", f"{tmp_path}/other/1/other.py"] == [
        versions["usual"].path,
        versions["other"].path,
    ]
    missing = f"{tmp_path}/missing/1/missing.py"
    assert f"Python model file not found in '{missing}'" == text_of(versions["missing"].problem)
    assert text_of(versions["text"].problem) == (
        "Model name must end with '.py'. Model name is \"model.txt\"."
    )


@pytest.mark.row("B22", "B23")
def test_with_gpus_a_model_gets_an_instance_on_each(tmp_path: Path) -> None:
    add(tmp_path, "m")
    options = parse([f"--model-repository={tmp_path}"])

    with_gpus = Readings(options, gpus=(0, 1)).read_model("m")
    without = Readings(options).read_model("m")

    assert [("GPU", 0), ("GPU", 1)] == [
        (place.kind, place.device)
        for place in with_gpus.finalize_config("").slots  # type: ignore[union-attr]
    ]
    # Instances choose by that number; which GPUs they see is left as it is.
    assert "CUDA_VISIBLE_DEVICES" not in variable_overrides(Environment("/p", "/env"), {})
    assert [("CPU", 0)] == [
        (place.kind, place.device)
        for place in without.finalize_config("").slots  # type: ignore[union-attr]
    ]


# -------------------------------------------------------------------- process settings
# The settings that every process of the server gets.


@pytest.mark.parametrize(("named", "bound"), [("LOCALHOST", "127.0.0.1"), ("0.0.0.0", "0.0.0.0")])
def test_where_http_listens_is_an_address_whatever_the_option_calls_it(
    named: str, bound: str, tmp_path: Path
) -> None:
    no_others: dict[str, Any] = {"allow_grpc": False, "allow_metrics": False}
    options = Options(http_address=named, http_port=0, **no_others)
    sockets = listeners.bind_all(options)

    settings = process_settings(options, RuntimeDirectory(tmp_path, -1), None, sockets)
    listeners.close_all(sockets)

    assert (named, bound) == settings.frontend.http[1:3]


# ------------------------------------------------------------------- model environment
# Which variables models get.


_LOCAL = ("/srv/models",)


_STORES = {
    "s3://bucket/models": ["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"],
    "gs://bucket/models": ["GOOGLE_APPLICATION_CREDENTIALS"],
    "as://account/container/models": ["AZURE_STORAGE_KEY"],
    "hf://org/name": ["HF_TOKEN"],
    "oci://registry/name": ["DOCKER_AUTH_CONFIG"],
}


@pytest.mark.parametrize(
    "name", ["DATABASE_URL", "HF_TOKEN", "BLS_KIND", "AWS_SECRET_ACCESS_KEY", "https_proxy", "PATH"]
)
def test_models_get_all_variables(name: str) -> None:
    assert {} == withheld({name: "x"}, (), _LOCAL)


@pytest.mark.parametrize(
    "name",
    [
        "NOTIFY_SOCKET",
        "LISTEN_FDS",
        "CREDENTIALS_DIRECTORY",
        "ZMQTRITON_OPTIONS",
        "ZMQTRITON_OPTION_HTTP_RESTRICTED_API",
    ],
)
def test_but_not_the_server_s_own(name: str) -> None:
    assert {name: "*"} == withheld({name: "x", "PATH": "y"}, (), _LOCAL)


@pytest.mark.addons
@pytest.mark.parametrize(("repository", "names"), _STORES.items())
def test_and_not_its_credentials_of_a_store_that_it_uses(repository: str, names: list[str]) -> None:
    environment = dict.fromkeys(["PATH", *(name for of in _STORES.values() for name in of)], "x")

    assert names == list(withheld(environment, (), (*_LOCAL, repository)))
    assert [] == list(withheld(environment, ["*"], (*_LOCAL, repository)))


@pytest.mark.parametrize(
    "name", ["PATH", "LC_ALL", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "PYTHONPATH", "HF_HOME"]
)
def test_what_libraries_need_passes_where_names_are_given(name: str) -> None:
    assert {} == withheld({name: "x"}, ("NAME",), _LOCAL)


@pytest.mark.parametrize(
    "name", ["AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "DATABASE_URL", "https_proxy", "PATHS", "XPATH"]
)
def test_anything_else_does_not(name: str) -> None:
    assert {name: name} == withheld({name: "x", "PATH": "y"}, ("NAME",), _LOCAL)


@pytest.mark.parametrize(
    ("named", "left"),
    [(("B",), ["A1", "A2"]), (("A*",), ["B"]), (("*",), []), (("A1", "B"), ["A2"])],
)
def test_what_is_named_passes(named: tuple[str, ...], left: list[str]) -> None:
    assert left == list(withheld(dict.fromkeys(("B", "A2", "A1"), "x"), named, _LOCAL))


# ---------------------------------------------------------------------------- capacity
# Readings of processes and processors.


def test_a_process_that_computes_has_had_some_of_a_processor_and_wants_more() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            eventually(lambda: capacity.processor_use(process.pid).ticks > 5, 30, "it computes")
            assert capacity.processor_use(process.pid).is_runnable
        finally:
            process.kill()


def test_a_process_that_sleeps_wants_nothing() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            eventually(lambda: not capacity.processor_use(process.pid).is_runnable, 30, "it sleeps")
        finally:
            process.kill()
    assert (0, False) == capacity.processor_use(process.pid)


def test_at_least_one_may_compute() -> None:
    assert capacity.max_computing() >= len(os.sched_getaffinity(0))
