"""The bytecode of a model's own files: made of what they have now, kept out of the repository."""

from __future__ import annotations

import importlib.util
import json
import marshal
import os
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from zmqtriton_stub import model_code
from zmqtriton_stub.model_code import ModelCode

SECOND = 1_000_000_000


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "models" / "m" / "1"
    directory.mkdir(parents=True)
    return directory


@pytest.fixture
def begun(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A process that has begun with the model's directory; where its bytecode is kept."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(SourceFileLoader, "get_code", SourceFileLoader.get_code)
    monkeypatch.setenv("ZMQTRITON_MODEL_CODE", "[]")
    kept = tmp_path / "run" / "bytecode" / "7"
    model_code.begin([str(model)], str(kept))

    return kept


def _save(path: Path, text: str, nanoseconds: int = 0) -> Path:
    """Save a file in the same second as all others, so that Python's cache cannot tell them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, ns=(SECOND, SECOND + nanoseconds))
    return path


def _value(path: Path) -> int:
    """The X of a file, as a model gets it that imports it by its path."""
    spec = importlib.util.spec_from_file_location("helper", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.X


def test_a_file_that_is_saved_twice_within_a_second_is_what_it_was_saved_as_last(
    model: Path, begun: Path
) -> None:
    helper = model / "deep" / "helper.py"

    assert [_value(_save(helper, f"X = {number}", number)) for number in (1, 2, 1)] == [1, 2, 1]
    assert len(list(begun.iterdir())) == 2, "the first was kept"
    assert not list(model.rglob("__pycache__"))


def test_what_comes_by_a_link_that_is_turned_is_compiled_anew(model: Path, begun: Path) -> None:
    for number in (1, 2):
        _save(model / f"..{number}" / "helper.py", f"X = {number}")
    (model / "helper.py").symlink_to("..data/helper.py")
    values = []
    for number in (1, 2):
        (model / "..new").symlink_to(f"..{number}")
        (model / "..new").rename(model / "..data")
        values.append(_value(model / "helper.py"))

    assert values == [1, 2]


def test_what_is_kept_is_taken_by_the_next_process(model: Path, begun: Path) -> None:
    helper = _save(model / "helper.py", "X = 1")
    _value(helper)
    [kept] = begun.iterdir()
    kept.write_bytes(marshal.dumps(compile("X = 'kept'", str(helper), "exec")))

    assert _value(helper) == "kept"  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("content", [b"", b"\0", b"no bytecode", b"\xe3"])
def test_what_is_kept_and_damaged_is_made_again(model: Path, begun: Path, content: bytes) -> None:
    helper = _save(model / "helper.py", "X = 1")
    _value(helper)
    [kept] = begun.iterdir()
    kept.write_bytes(content)

    assert _value(helper) == 1
    assert kept.read_bytes() != content


def test_errors_are_those_of_the_file(model: Path, begun: Path) -> None:
    with pytest.raises(SyntaxError) as caught:
        _value(_save(model / "helper.py", "X = 1\nX = ("))

    assert (str(model / "helper.py"), 2) == (caught.value.filename, caught.value.lineno)


def test_only_files_of_the_model_are_its_own(model: Path) -> None:
    code = ModelCode([str(model), str(model)], "")

    own = {
        path: code.has(path)
        for path in (
            f"{model}/model.py",
            f"{model}/a/b/c.py",
            f"{model}/../1/model.py",
            f"{model}2/model.py",
            f"{model}/env/lib/python3.11/site-packages/numpy/__init__.py",
            f"{model}/env/lib/python3/dist-packages/numpy.py",
            os.__file__,
        )
    }

    assert list(own.values()) == [True, True, True, False, False, False, False]


def test_a_place_that_others_may_write_to_is_not_used(model: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    kept.chmod(0o777)
    helper = _save(model / "helper.py", "X = 1")

    ModelCode([str(model)], str(kept)).compile(SourceFileLoader("helper", str(helper)), str(helper))

    assert not list(kept.iterdir())


def test_without_a_place_everything_works(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    helper = _save(model / "helper.py", "X = 1")
    for nowhere in ("", f"{tmp_path}/file/7"):
        code = ModelCode([str(model)], nowhere)
        namespace: dict[str, int] = {}
        exec(code.compile(SourceFileLoader("helper", str(helper)), str(helper)), namespace)
        assert namespace["X"] == 1


def test_a_process_that_is_told_nothing_is_python_s(monkeypatch: pytest.MonkeyPatch) -> None:
    standard = SourceFileLoader.get_code
    monkeypatch.delenv("ZMQTRITON_MODEL_CODE", raising=False)

    model_code.follow()

    assert SourceFileLoader.get_code is standard


def test_spawned_processes_are_told(begun: Path, model: Path) -> None:
    assert [str(model), str(begun)] == json.loads(os.environ["ZMQTRITON_MODEL_CODE"])
