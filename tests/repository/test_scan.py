"""The repository on disk: models, versions, and what counts as a change."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.refusals import refusal
from zmqtriton.config.errors import ConfigError
from zmqtriton.config.pbtxt import parse_text
from zmqtriton.repository.scan import (
    ScannedModel,
    choose_versions,
    code_fingerprint,
    find_config,
    repository_hint,
    scan_model,
    scan_repositories,
)
from zmqtriton_floor.errors import InternalError, InvalidArgument

pytestmark = pytest.mark.slow


def make_model(repository: Path, name: str, *versions: str) -> Path:
    model = repository / name
    for version in versions or ("1",):
        (model / version).mkdir(parents=True)
        (model / version / "model.py").write_text("# model")
    (model / "config.pbtxt").write_text("")
    return model


def one(model: Path) -> ScannedModel:
    return scan_model(model, model.parent)


def test_every_directory_is_a_model_but_hidden_ones_and_those_of_file_systems(
    tmp_path: Path,
) -> None:
    make_model(tmp_path, "b", "1", "3", "2")
    (tmp_path / "a").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "..data").mkdir()
    (tmp_path / "lost+found").mkdir(mode=0)
    (tmp_path / "README").touch()

    models = scan_repositories([tmp_path])

    assert ["a", "b"] == list(models)
    assert ((), None) == (models["a"].versions, models["a"].config_path)
    assert (1, 2, 3) == models["b"].versions
    assert tmp_path / "b" / "config.pbtxt" == models["b"].config_path
    assert ("", ()) == (models["b"].problem, models["b"].warnings)


def test_a_repository_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match=r"^failed to stat file .*gone: there is no such"):
        scan_repositories([tmp_path / "gone"])


@pytest.mark.row("F05")
def test_directories_that_are_no_versions_are_ignored_with_a_warning(tmp_path: Path) -> None:
    model = make_model(tmp_path, "m", "0", "1", "02", "1abc", "python_env", "-1", "9" * 19)
    for silent in ("warmup", "initial_state", "configs", "__pycache__", ".cache"):
        (model / silent).mkdir()

    scanned = one(model)

    number = "which fails to convert to integral number"
    assert (0, 1) == scanned.versions
    assert (
        f"ignore version directory '-1' {number}",
        "ignore version directory '02' which contains leading zeros in its directory name",
        f"ignore version directory '1abc' {number}",
        f"ignore version directory '{'9' * 19}' {number}",
        f"ignore version directory 'python_env' {number}",
    ) == scanned.warnings


def test_a_version_that_leads_outside_the_repository_is_ignored(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    shared = make_model(repository, "shared")
    model = make_model(repository, "m", "3")
    (model / "1").symlink_to("/etc")
    (model / "2").symlink_to(shared / "1")
    (model / "4").symlink_to(model / "4")

    scanned = one(model)

    assert (2, 3) == scanned.versions
    assert (
        "ignore version directory '1' which leads outside the model repository",
    ) == scanned.warnings


def test_a_model_directory_may_itself_be_a_link(tmp_path: Path) -> None:
    elsewhere = make_model(tmp_path / "elsewhere", "m")
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "n").symlink_to(elsewhere)

    assert (1,) == scan_repositories([tmp_path / "repository"])["n"].versions


def test_a_model_that_cannot_be_read_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = make_model(tmp_path, "closed")
    make_model(tmp_path, "open")
    scandir = os.scandir

    def refuse(path: Path) -> Any:
        if path == closed:
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    models = scan_repositories([tmp_path])

    assert f"failed to open directory {closed}: Permission denied" == models["closed"].problem
    assert ("", (1,)) == (models["open"].problem, models["open"].versions)


def test_a_name_in_two_repositories_is_one_model_with_a_problem(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    make_model(first, "m")
    make_model(second, "m")
    make_model(second, "n")

    models = scan_repositories([first, second])

    assert ["m", "n"] == list(models)
    assert ("failed to poll model 'm': not unique across all model repositories") == models[
        "m"
    ].problem
    assert "" == models["n"].problem
    assert first == models["m"].repository


def test_the_same_repository_given_twice_is_no_conflict(tmp_path: Path) -> None:
    make_model(tmp_path, "m")

    assert "" == scan_repositories([tmp_path, tmp_path])["m"].problem


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_model(tmp_path, "m")


@pytest.mark.row("E08", "--model-config-name")
def test_a_named_configuration_is_taken_if_it_is_there(model: Path, tmp_path: Path) -> None:
    (model / "configs").mkdir()
    custom = model / "configs" / "h100.pbtxt"
    custom.touch()

    assert custom == find_config(model, "h100")
    assert model / "config.pbtxt" == find_config(model, "a100")
    assert model / "config.pbtxt" == find_config(model)
    with pytest.raises(InvalidArgument):
        find_config(model, "../../h100")


@pytest.mark.row("E36")
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("", (1, 2, 5)),
        ("version_policy { all {} }", (1, 2, 5)),
        ("version_policy { latest { num_versions: 1 } }", (5,)),
        ("version_policy { latest { num_versions: 2 } }", (2, 5)),
        ("version_policy { specific { versions: [2, 1] } }", (1, 2)),
    ],
)
def test_the_policy_selects_versions(policy: str, expected: tuple[int, ...]) -> None:
    choice = choose_versions(parse_text(policy), [5, 1, 2])

    assert expected == choice.versions
    assert () == choice.warnings


@pytest.mark.row("E36")
def test_a_specific_version_that_is_missing_is_a_warning() -> None:
    config = parse_text('name: "m" version_policy { specific { versions: [2, 7] } }')

    choice = choose_versions(config, [1, 2])

    assert (2,) == choice.versions
    assert (
        "version 7 is specified for model 'm', but the version directory is not present",
    ) == choice.warnings


@pytest.mark.row("E36")
@pytest.mark.parametrize(
    "policy",
    ["latest { num_versions: 1 }", "latest {}", "specific { versions: 7 }", "all {}"],
)
def test_a_policy_that_leaves_nothing_is_an_error(policy: str) -> None:
    config = parse_text(f'name: "m" version_policy {{ {policy} }}')
    present = [1] if "7" in policy or policy == "latest {}" else []

    assert (
        "at least one version must be available under the version policy of model 'm'. A version "
        "is a directory such as m/1, and version_policy may leave it out"
    ) == refusal(ConfigError, choose_versions, config, present)


def age(path: Path) -> None:
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize(
    "change",
    [
        lambda model: age(model / "config.pbtxt"),
        lambda model: age(model / "1" / "model.py"),
        lambda model: (model / "1" / "weights").mkdir() or (model / "1" / "weights" / "w").touch(),
        lambda model: (model / "2").mkdir(),
        lambda model: (model / "labels.txt").touch(),
        lambda model: (model / "1" / "model.py").unlink(),
        lambda model: (model / "config.pbtxt").unlink(),
        lambda model: (model / "warmup").mkdir() or (model / "warmup" / "w").touch(),
        lambda model: (model / "1/inner").mkdir() or (model / "1/inner/w").touch(),
        lambda model: (model / "python_env").mkdir(),
    ],
    ids=[
        *("config", "model.py", "new file", "version", "labels", "less", "no config", "warmup"),
        *("below a version", "environment"),
    ],
)
def test_a_change_of_the_models_files_is_seen(model: Path, tmp_path: Path, change: object) -> None:
    before = one(model).fingerprint

    assert callable(change)
    change(model)

    assert before != one(model).fingerprint


def _rename_over(file: Path) -> None:
    draft = file.with_name("draft")
    draft.write_bytes(file.read_bytes().swapcase())
    os.utime(draft, ns=(0, file.stat().st_mtime_ns))
    draft.replace(file)


def _write_in_place(file: Path) -> None:
    before = file.stat()
    # the clock of a file system ticks every few milliseconds
    while file.stat().st_ctime_ns == before.st_ctime_ns:
        file.write_bytes(file.read_bytes().swapcase())
    os.utime(file, ns=(0, before.st_mtime_ns))


@pytest.mark.parametrize("replace", [_rename_over, _write_in_place])
def test_another_file_of_the_same_size_and_time_is_a_change(
    model: Path, tmp_path: Path, replace: Callable[[Path], None]
) -> None:
    file = model / "1" / "model.py"
    before, status = one(model).fingerprint, file.stat()

    replace(file)

    after = file.stat()
    assert (status.st_size, status.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    assert before != one(model).fingerprint


def test_what_running_a_model_leaves_behind_is_no_change(model: Path, tmp_path: Path) -> None:
    before = one(model).fingerprint

    (model / "1" / "__pycache__").mkdir()
    (model / "1" / "__pycache__" / "model.pyc").touch()
    (model / "1" / ".model.py.swp").touch()
    (model / ".cache").mkdir()

    assert before == one(model).fingerprint


def test_the_inside_of_an_environment_is_not_walked(model: Path, tmp_path: Path) -> None:
    (model / "python_env").mkdir()
    before = one(model).fingerprint

    (model / "python_env" / "pyvenv.cfg").touch()

    assert before == one(model).fingerprint


def test_the_contents_of_a_version_are_its_own_and_what_all_share(tmp_path: Path) -> None:
    def contents() -> dict[int, str]:
        return dict(scan_model(tmp_path / "m", tmp_path).version_fingerprints)

    for version in ("1", "2"):
        (tmp_path / "m" / version).mkdir(parents=True)
        (tmp_path / "m" / version / "model.py").write_text("")
    before = contents()

    (tmp_path / "m" / "config.pbtxt").write_text("max_batch_size: 1")
    assert before == contents(), "the configuration is compared as such"

    (tmp_path / "m" / "2" / "inner").mkdir()
    (tmp_path / "m" / "2" / "inner" / "weights").touch()
    after = contents()
    assert (before[1], True) == (after[1], before[2] != after[2])

    (tmp_path / "m" / "warmup" / "inner").mkdir(parents=True)
    for file in ("labels.txt", "warmup/inner/sample"):
        (tmp_path / "m" / file).touch()
        earlier, after = after, contents()
        assert not set(earlier.values()) & set(after.values())


def test_circles_of_links_end_the_walk(model: Path, tmp_path: Path) -> None:
    (model / "1" / "again").symlink_to(model / "1")
    (model / "1" / "nowhere").symlink_to(model / "gone")

    assert one(model).fingerprint == one(model).fingerprint


def test_a_tree_of_any_depth_is_read(tmp_path: Path) -> None:
    version = tmp_path / "m" / "1"
    version.mkdir(parents=True)
    # Deeper than a name may be long, and than a function may call itself.
    descriptor = os.open(version, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)

    try:
        assert (1,) == scan_model(tmp_path / "m", tmp_path).versions
    finally:
        # Python's own rmtree, which pytest uses, calls itself too.
        subprocess.run(["rm", "-rf", str(version)], check=True)


def test_a_directory_whose_name_is_no_text_is_left_out(tmp_path: Path) -> None:
    for name in (b"good", b"b\xff"):
        (tmp_path / os.fsdecode(name)).mkdir()

    assert ["good"] == list(scan_repositories([tmp_path]))


def test_a_change_of_a_backend_is_one_of_its_code_and_not_of_its_environments(
    tmp_path: Path,
) -> None:
    for folder in ("inner", "venv/lib", "conda/lib"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    (tmp_path / "conda" / "conda-meta").mkdir()
    first = code_fingerprint(tmp_path)

    (tmp_path / "venv" / "lib" / "x.py").write_text("1")
    (tmp_path / "conda" / "lib" / "x.py").write_text("1")
    assert first == code_fingerprint(tmp_path)

    (tmp_path / "inner" / "x.py").write_text("1")
    assert first != code_fingerprint(tmp_path)


# ------------------------------------------------------------------- advice


@pytest.mark.parametrize("file", ["config.pbtxt", "model.py", "1/model.py"])
def test_a_model_is_no_repository(tmp_path: Path, file: str) -> None:
    path = tmp_path / "m" / file
    path.parent.mkdir(parents=True)
    path.touch()

    assert (
        f"'{tmp_path}/m' looks like a model, not like a directory of models; "
        f"did you mean --model-repository={tmp_path}?"
    ) == repository_hint(tmp_path / "m")


def test_a_directory_without_models_is_named(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").touch()

    assert f"there is no model in '{tmp_path}'" == repository_hint(tmp_path)


@pytest.mark.parametrize("name", ["m", "7"])
def test_a_repository_needs_no_advice(tmp_path: Path, name: str) -> None:
    make_model(tmp_path, name)

    assert "" == repository_hint(tmp_path)


def test_what_is_not_there_is_somebody_elses_error(tmp_path: Path) -> None:
    with pytest.raises(InternalError):
        repository_hint(tmp_path / "gone")


def test_a_tilde_that_no_shell_has_seen_is_told() -> None:
    with pytest.raises(InternalError, match="failed to stat file ~/models: no shell has"):
        repository_hint(Path("~/models"))


def test_a_model_file_outside_of_a_version_is_told(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.py").touch()

    model = scan_model(tmp_path / "m", tmp_path)

    expected = (
        f"'{tmp_path}/m/model.py' must lie in the directory of a version: '{tmp_path}/m/1/model.py'"
    )
    assert (expected,) == model.warnings
    (tmp_path / "m" / "1").mkdir()
    assert () == scan_model(tmp_path / "m", tmp_path).warnings
