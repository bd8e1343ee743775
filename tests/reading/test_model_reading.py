from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.floor.reasons import text_of
from tests.supervisor.readings import Readings
from tests.supervisor.settings import options_with
from tests.support.scripted import string_parameter
from zmqtriton.config.errors import ConfigError
from zmqtriton.config.parameters import Quota
from zmqtriton.environments.demand import (
    Environment,
    EnvironmentSpec,
    GuestHost,
)
from zmqtriton.options import Options
from zmqtriton.options.values import ModelFile
from zmqtriton.reading.blueprint import Blueprint, LoadOverride, ReadFailure
from zmqtriton_floor.errors import AlreadyExists, InternalError, InvalidArgument, NotFound

CONFIG = """
backend: "python"
input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""


def add(
    repository: Path, name: str, config: str = CONFIG, versions: tuple[str, ...] = ("1",)
) -> Path:
    for version in versions:
        folder = repository / name / version
        folder.mkdir(parents=True)
        (folder / "model.py").write_text("")
    (repository / name / "config.pbtxt").write_text(config)
    return repository / name


def blueprint_of(
    reader: Readings, name: str = "m", override: LoadOverride | None = None
) -> Blueprint:
    blueprint = reader.read_model(name, override)
    assert isinstance(blueprint, Blueprint), blueprint
    return blueprint


def failure_of(reader: Readings, name: str = "m") -> ReadFailure:
    failure = reader.read_model(name)
    assert isinstance(failure, ReadFailure), failure
    return failure


def reader_of(repository: Path, **options: Any) -> Readings:
    return Readings(options_with(model_repository=(str(repository),), **options))


def read(repository: Path, name: str, **options: Any) -> Blueprint:
    return blueprint_of(reader_of(repository, **options), name)


def test_the_first_instance_is_called_as_it_will_be(tmp_path: Path) -> None:
    add(tmp_path, "m")

    blueprint = read(tmp_path, "m")

    assert blueprint.first_slot == blueprint.finalize_config("").slots[0]


@pytest.mark.row("F04", "--model-repository")
def test_a_name_in_two_repositories_is_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        add(tmp_path / folder, "m")
    repository = Readings(Options(model_repository=(f"{tmp_path}/a", f"{tmp_path}/b")))

    failure = failure_of(repository)

    assert (
        failure.reason.text == "failed to poll model 'm': not unique across all model repositories"
    )
    (duplicate,) = repository.list_names().values()
    assert "model appears in two or more repositories" == text_of(duplicate)


def test_a_broken_configuration_is_a_reason(tmp_path: Path) -> None:
    add(tmp_path, "m", "backend: [")

    failure = failure_of(reader_of(tmp_path))

    assert "failed to read text proto" in failure.reason.text
    assert failure.fingerprint


def test_a_model_without_versions_has_none(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.pbtxt").write_text(CONFIG)

    assert read(tmp_path, "m").versions == {}


def test_an_ensemble_names_its_steps_and_is_final_with_its_members(tmp_path: Path) -> None:
    config = """
platform: "ensemble"
input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
ensemble_scheduling { step [ { model_name: "m" model_version: -1
  input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" } } ] }
"""
    add(tmp_path, "e", config)
    add(tmp_path, "m")

    blueprint, member = read(tmp_path, "e"), read(tmp_path, "m").finalize_config("")

    assert blueprint.ensemble is not None
    assert (("m", -1),) == blueprint.ensemble.steps
    assert [None] == [version.problem for version in blueprint.versions.values()]
    finished = blueprint.ensemble.finalize_config({"m": member})
    assert () == finished.slots
    assert '"decoupled":false' in finished.config


def test_an_ensemble_that_does_not_fit_its_members_is_refused(tmp_path: Path) -> None:
    config = """
platform: "ensemble"
input [ { name: "X" data_type: TYPE_INT8 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
ensemble_scheduling { step [ { model_name: "m" model_version: 1
  input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" } } ] }
"""
    add(tmp_path, "e", config)
    add(tmp_path, "m")
    ensemble, member = read(tmp_path, "e").ensemble, read(tmp_path, "m").finalize_config("")

    assert ensemble is not None
    assert (("m", 1),) == ensemble.steps
    with pytest.raises(ConfigError, match="inconsistent data type"):
        ensemble.finalize_config({"m": member})


def parameter(name: str, value: str) -> str:
    return CONFIG + f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}'


def test_an_environment_beside_the_model_is_used(tmp_path: Path) -> None:
    model = add(
        tmp_path, "m", parameter("EXECUTION_ENV_PATH", "$$TRITON_MODEL_DIRECTORY/python_env")
    )
    binaries = model / "python_env" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "activate").touch()
    (binaries / "python").touch(mode=0o755)

    assert read(tmp_path, "m").environment == EnvironmentSpec("directory", str(binaries.parent))


def test_what_a_guest_runs_has_its_environment(tmp_path: Path) -> None:
    add(tmp_path, "m", parameter("EXECUTION_ENV_PATH", "$$TRITON_MODEL_DIRECTORY/none"))
    blueprint = blueprint_of(reader_of(tmp_path), "m", LoadOverride("{}", host=GuestHost(7, 1)))

    assert blueprint.environment == Environment("", host=GuestHost(7, 1))


def test_a_directory_that_is_no_environment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    add(tmp_path / "models", "m", parameter("EXECUTION_ENV_PATH", str(tmp_path / "env")))

    assert text_of(read(tmp_path / "models", "m").versions[1].problem) == (
        f"Path {tmp_path}/env/bin/activate does not exist. The Python environment should contain "
        "an 'activate' script."
    )


def test_a_repository_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="failed to stat file"):
        Readings(Options(model_repository=(f"{tmp_path}/nowhere",))).list_names()


@pytest.mark.row("F22")
def test_repositories_come_and_go(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        add(tmp_path / folder, folder)
    repository = Readings(Options(model_repository=(str(tmp_path / "one"),)))
    more = str(tmp_path / "two")

    repository.register(more)
    assert ["one", "two"] == list(repository.list_names())
    assert isinstance(repository.read_model("two"), Blueprint)

    with pytest.raises(AlreadyExists, match=f"model repository '{more}' has already been registe"):
        repository.register(more)
    with pytest.raises(InvalidArgument, match="failed to register '/not/here', repository not fou"):
        repository.register("/not/here")
    with pytest.raises(NotFound, match="failed to unregister '/not/here', repository not found"):
        repository.unregister("/not/here")

    repository.unregister(f"{more}/")
    assert ["one"] == list(repository.list_names())
    assert isinstance(repository.read_model("two"), ReadFailure)


def test_a_folder_may_be_served_under_another_name(tmp_path: Path) -> None:
    add(tmp_path / "one", "one")
    for repository in ("two", "three"):
        add(tmp_path / repository, "folder", CONFIG + 'name: "folder"')
    reader = Readings(Options(model_repository=(str(tmp_path / "one"),)))

    reader.register(str(tmp_path / "two"), {"folder": "m"})

    assert ["m", "one"] == list(reader.list_names())
    blueprint = blueprint_of(reader)
    assert ("m", str(tmp_path / "two" / "folder")) == (blueprint.name, blueprint.directory)
    assert isinstance(reader.read_model("folder"), ReadFailure)
    text = "failed to register 'm', there is a conflicting mapping for 'm'"
    with pytest.raises(AlreadyExists, match=text):
        reader.register(str(tmp_path / "three"), {"folder": "m"})

    reader.unregister(str(tmp_path / "two"))
    reader.register(str(tmp_path / "three"), {"folder": "m"})
    assert isinstance(reader.read_model("m"), Blueprint)


GROUPS = "instance_group [ { count: 3 kind: KIND_CPU } ] version_policy { all { } }"


@pytest.mark.row("F11")
@pytest.mark.parametrize(
    ("added", "is_same"),
    [
        ("", True),
        (GROUPS, True),
        ("# nothing", True),
        ("max_batch_size: 4", False),
        ("dynamic_batching { }", False),
        ('parameters { key: "a" value { string_value: "b" } }', False),
    ],
)
def test_the_substance_of_a_version_is_all_but_its_instances(
    tmp_path: Path, added: str, is_same: bool
) -> None:
    path = add(tmp_path, "m")
    before = read(tmp_path, "m").versions[1].fingerprint_without_instances
    assert before

    (path / "config.pbtxt").write_text(f"{CONFIG}\n{added}\n")

    assert is_same == (before == read(tmp_path, "m").versions[1].fingerprint_without_instances)


@pytest.mark.parametrize(
    "bound",
    [
        "sequence_batching { direct { } }",
        "instance_group [ { count: 1 kind: KIND_CPU rate_limiter { priority: 1 } } ]",
    ],
)
def test_what_depends_on_its_instances_is_never_the_same(tmp_path: Path, bound: str) -> None:
    add(tmp_path, "m", f"{CONFIG}\n{bound}\n")

    assert "" == read(tmp_path, "m").versions[1].fingerprint_without_instances


@pytest.mark.row("L15")
@pytest.mark.parametrize(
    ("added", "is_same"),
    [
        ("", True),
        ("# nothing", True),
        (GROUPS, False),
        ("max_batch_size: 4", False),
        ('parameters { key: "a" value { string_value: "b" } }', False),
    ],
)
def test_code_may_change_by_itself(tmp_path: Path, added: str, is_same: bool) -> None:
    path = add(tmp_path, "m")
    before = read(tmp_path, "m").versions[1]

    (path / "1" / "model.py").write_text("other = 1")
    (path / "config.pbtxt").write_text(f"{CONFIG}\n{added}\n")

    after = read(tmp_path, "m").versions[1]
    assert before.fingerprint_without_instances != after.fingerprint_without_instances
    assert is_same == (before.fingerprint_without_code == after.fingerprint_without_code != "")


@pytest.mark.row("L15")
def test_a_cache_is_not_for_the_answers_of_other_code(tmp_path: Path) -> None:
    add(tmp_path, "m", f"{CONFIG}\nresponse_cache {{ enable: true }}\n")

    assert "" == read(tmp_path, "m").versions[1].fingerprint_without_code


@pytest.mark.row("F14")
def test_a_model_names_those_that_it_asks(tmp_path: Path) -> None:
    asks = 'parameters { key: "BLS_MODELS" value { string_value: " a, b,,a " } }'
    add(tmp_path, "m", CONFIG + asks)
    add(tmp_path, "plain")

    assert (("a", "b"), ()) == (read(tmp_path, "m").callees, read(tmp_path, "plain").callees)


def test_a_load_may_be_bounded(tmp_path: Path) -> None:
    def bounded(name: str, value: str) -> Path:
        bound = f'parameters {{ key: "max_load_seconds" value {{ string_value: "{value}" }} }}'
        return add(tmp_path, name, CONFIG + bound)

    bounded("m", "2.5")
    bounded("wrong", "soon")
    add(tmp_path, "plain")

    assert (2.5, 0.0) == tuple(read(tmp_path, n).max_load_s for n in ("m", "plain"))
    reason = "max_load_seconds is 'soon', which is no number of seconds"
    assert reason == failure_of(reader_of(tmp_path), "wrong").reason.text


@pytest.mark.row("L22")
def test_a_model_may_have_a_quota(tmp_path: Path) -> None:
    add(tmp_path, "m", CONFIG + string_parameter("max_memory_bytes", "2G"))
    wrong = add(tmp_path, "wrong", CONFIG + string_parameter("cpu_weight", "heavy"))
    add(tmp_path, "plain")

    assert Quota("m", max_memory_bytes=2 << 30) == read(tmp_path, "m").quota
    assert Quota("plain") == read(tmp_path, "plain").quota
    reason = text_of(read(tmp_path, "wrong").versions[1].problem)
    assert reason.startswith("cpu_weight is 'heavy', which is no whole number from 1 to 10000")
    assert f"(at {wrong}/config.pbtxt:" in reason


def test_a_model_has_changed_when_the_file_of_its_environment_has(tmp_path: Path) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("numpy\n")
    value = f'value {{ string_value: "{requirements}" }}'
    add(tmp_path, "m", f'parameters {{ key: "PYTHON_REQUIREMENTS" {value} }}')
    before = read(tmp_path, "m").fingerprint

    requirements.write_text("numpy\npandas\n")

    assert before != read(tmp_path, "m").fingerprint


@pytest.mark.row("K20")
def test_a_change_of_a_backend_is_one_of_its_models(tmp_path: Path) -> None:
    code = tmp_path / "backends" / "own" / "model.py"
    for name in ("own", "other"):
        (tmp_path / "backends" / name).mkdir(parents=True)
        (tmp_path / "backends" / name / "model.py").write_text("")
        add(tmp_path / "models", name, CONFIG.replace("python", name))

    def fingerprints(name: str) -> tuple[str, str]:
        blueprint = read(tmp_path / "models", name, backend_directory=str(tmp_path / "backends"))
        return blueprint.fingerprint, blueprint.versions[1].fingerprint_without_instances

    first, other = fingerprints("own"), fingerprints("other")
    assert (first, other) == (fingerprints("own"), fingerprints("other"))

    code.write_text("# other")

    assert all(one != now for one, now in zip(first, fingerprints("own"), strict=True))
    assert other == fingerprints("other")


@pytest.mark.addons
@pytest.mark.row("L08")
@pytest.mark.extra("openai")
def test_a_change_of_a_chat_template_is_one_of_its_model(tmp_path: Path) -> None:
    template = add(tmp_path, "m") / "chat_template.jinja"

    def fingerprints() -> tuple[str, str]:
        blueprint = read(tmp_path, "m", allow_openai=True)
        return blueprint.fingerprint, blueprint.versions[1].fingerprint_without_instances

    template.write_text("a")
    before = fingerprints()
    template.write_text("bc")

    assert all(one != other for one, other in zip(before, fingerprints(), strict=True))


@pytest.mark.extra("openai")
def test_a_chat_template_that_is_missing_is_the_reason(tmp_path: Path) -> None:
    named = 'parameters { key: "openai_chat_template" value { string_value: "none.jinja" } }'
    add(tmp_path, "m", f"{CONFIG}\n{named}\n")

    problem = text_of(read(tmp_path, "m", allow_openai=True).versions[1].problem)

    assert problem.startswith("failed to open text file for read ")
    assert read(tmp_path, "m").versions[1].problem is None


# ------------------------------------------------------------------- single files


@pytest.fixture
def reader(tmp_path: Path) -> Readings:
    file = tmp_path / "code" / "scale.py"
    file.parent.mkdir()
    file.write_text("")
    (tmp_path / "models").mkdir()
    files = (ModelFile("m", str(file)),)
    return Readings(Options(model_repository=(str(tmp_path / "models"),), model_file=files))


def test_it_runs_from_where_it_lies(tmp_path: Path, reader: Readings) -> None:
    blueprint = blueprint_of(reader)

    assert {"m": None} == reader.list_names()
    assert str(tmp_path / "code") == blueprint.directory
    assert str(tmp_path / "code" / "scale.py") == blueprint.versions[1].path


@pytest.mark.parametrize("field", ["backend", "platform"])
def test_a_configuration_of_another_kind_is_refused(
    tmp_path: Path, reader: Readings, field: str
) -> None:
    (tmp_path / "code" / "config.pbtxt").write_text(f'{field}: "ensemble"')

    assert (
        f"{field} 'ensemble' does not run 'scale.py', which is Python"
        in failure_of(reader).reason.text
    )


def test_a_name_that_a_repository_has_too_is_refused(tmp_path: Path, reader: Readings) -> None:
    (tmp_path / "models" / "m").mkdir()

    assert "not unique across all model repositories" in failure_of(reader).reason.text
