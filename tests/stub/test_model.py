from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.stub.conftest import Write
from tests.stub.fakes import LOAD
from tests.support.refusals import refusal
from zmqtriton_floor import wire
from zmqtriton_stub.api import pb_utils
from zmqtriton_stub.api.errors import describe, reason_of
from zmqtriton_stub.instance import StubInstance
from zmqtriton_stub.model import PythonModel, import_class

pytestmark = pytest.mark.usefixtures("nothing_imported")


def _load(model: Path, file: str = "1/model.py", config: str = '{"name": "m"}') -> PythonModel:
    load = wire.LoadModel("m_0_0", "m", 1, "KIND", 3, str(model), str(model / file), config, 0)
    return PythonModel(load, import_class(load))


def _instance(is_decoupled: bool = False) -> StubInstance:
    instance = StubInstance(LOAD, lambda message: None)
    instance.is_decoupled = is_decoupled
    return instance


def _failure(model: Path, file: str = "1/model.py") -> BaseException:
    try:
        _load(model, file)
    except Exception as error:  # noqa: BLE001 - which one is what the test asks
        return error
    raise AssertionError("it was loaded")


def test_a_model_may_import_what_lies_beside_it_both_ways(write_model: Write) -> None:
    code = """
        from . import beside
        import beside as absolute
        class TritonPythonModel:
            both = beside.NAME, absolute.NAME, __name__
    """

    model = _load(write_model(code, beside="NAME = __name__"))

    assert model.model_class.both == ("1.beside", "beside", "1.model")


def test_a_file_outside_of_a_version_is_itself_whatever_has_its_name(write_model: Write) -> None:
    directory = write_model("class TritonPythonModel: pass")
    (directory / "json.py").write_text("import json\nclass TritonPythonModel: text = json.dumps(1)")

    assert _load(directory, "json.py").model_class.text == "1"


def test_the_version_s_directory_is_the_package_whatever_has_its_name(
    write_model: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "site" / "1"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("NAME = 'other'")
    monkeypatch.syspath_prepend(str(other.parent))

    assert (
        _load(write_model("class TritonPythonModel: name = __name__")).model_class.name == "1.model"
    )


def test_a_version_s_directory_may_be_a_package_with_code(write_model: Write) -> None:
    code = """
        import sys
        class TritonPythonModel:
            name = sys.modules["1"].NAME
    """
    directory = write_model(code)
    (directory / "1" / "__init__.py").write_text("NAME = __name__, __path__")

    assert _load(directory).model_class.name == ("1", [str(directory / "1")])


def test_the_model_s_directories_come_last_on_the_path(write_model: Write) -> None:
    before = sys.path.copy()

    directory = write_model("class TritonPythonModel: pass")
    _load(directory)

    assert sys.path == [*before, str(directory / "1"), str(directory)]


def test_the_file_may_have_another_name(write_model: Write) -> None:
    model = _load(write_model("class TritonPythonModel: n = __name__", "1/other.py"), "1/other.py")

    assert model.model_class.n == "1.other"


def test_both_names_of_pb_utils_have_the_same_classes(write_model: Write) -> None:
    code = """
        import c_python_backend_utils
        class TritonPythonModel:
            modules = pb_utils, c_python_backend_utils
    """

    one, other = _load(write_model(code)).model_class.modules

    assert ("triton_python_backend_utils", "c_python_backend_utils") == (
        one.__name__,
        other.__name__,
    )
    assert one.Tensor is other.Tensor is pb_utils.Tensor


def test_files_beside_the_model_do_not_shadow_pb_utils(write_model: Write) -> None:
    code = "class TritonPythonModel: module = pb_utils"

    model = _load(write_model(code, triton_python_backend_utils="x = 1"))

    assert model.model_class.module.Tensor is pb_utils.Tensor


def test_code_outside_of_the_model_is_imported_by_its_name_alone(write_model: Write) -> None:
    directory = write_model("class TritonPythonModel: n = __name__", "../backend/shared.py")

    assert _load(directory, "../backend/shared.py").model_class.n == "shared"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert str(_failure(tmp_path)) == f"Python model file not found in '{tmp_path}/1/model.py'"


def test_a_file_that_is_not_python_is_refused(write_model: Write) -> None:
    assert str(_failure(write_model("", "1/model.txt"), "1/model.txt")) == (
        "Model name must end with '.py'. Model name is \"model.txt\"."
    )


@pytest.mark.parametrize(
    ("call", "place"),
    [
        ("import json\njson.loads('{')", ("model.py", 3)),
        ("from . import beside\nbeside.fall()", ("beside.py", 2)),
        ("import library\nlibrary.fall()", ("model.py", 5)),
    ],
    ids=["a library", "a module of its own", "a library below its directory"],
)
def test_the_place_of_an_exception_is_the_models_own_line(
    write_model: Write, tmp_path: Path, call: str, place: tuple[str, int]
) -> None:
    packages = tmp_path / "m" / "1" / "lib" / "site-packages"
    packages.mkdir(parents=True)
    fall = "def fall():\n    raise KeyError('x')\n"
    (packages / "library.py").write_text(fall)
    if "library" in call:
        call = f"import sys\nsys.path.append({str(packages)!r})\n{call}"

    error = _failure(write_model(call, beside=fall))
    while error.__traceback__ and error.__traceback__.tb_frame.f_code.co_filename == __file__:
        error.__traceback__ = error.__traceback__.tb_next  # a stub catches it itself
    values = reason_of(error).values

    assert place == (Path(values["file"]).name, values["line"])


def test_of_a_deep_recursion_both_ends_are_shown(write_model: Write) -> None:
    code = """
    def walk(depth):
        return walk(depth + 1)
    walk(0)
    """

    lines = describe(_failure(write_model(code))).splitlines()

    assert lines[0].startswith("RecursionError: maximum recursion depth exceeded")
    assert 3 + 21 == len(lines)
    assert lines[13].startswith("  ... 9")


def test_frames_of_our_own_are_not_shown(write_model: Write) -> None:
    directory = write_model("pb_utils.Tensor('', __import__('numpy').zeros(1))")

    assert describe(_failure(directory)).startswith(
        "TritonModelException: Tensor name cannot be an empty string.\n\nAt:\n"
        f"  {directory}/1/model.py(2): <module>\n"
    )


def test_without_auto_complete_config_the_configuration_stays(write_model: Write) -> None:
    assert _load(write_model("class TritonPythonModel: pass")).complete() == ""


@pytest.mark.row("A21")
def test_auto_complete_config_must_return_a_configuration(write_model: Write) -> None:
    code = """
        class TritonPythonModel:
            def auto_complete_config(config): return config.as_dict()
    """

    assert refusal(pb_utils.TritonModelException, lambda: _load(write_model(code)).complete()) == (
        "auto_complete_config function in model 'm' must return a valid pb.ModelConfig object."
    )


def _execute(write_model: Write, code: str, count: int = 2, is_decoupled: bool = False) -> Any:
    model = _load(write_model("class TritonPythonModel:\n" + code))
    model.initialize("{}", _instance(is_decoupled))
    requests: list[Any] = [object() for _ in range(count)]
    return model.execute(requests)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("    pass", "Python model {} does not implement `execute` method."),
        (
            "    def exceute(self, requests): return []",
            "Python model {} does not implement `execute` method. Is 'exceute' meant to be it?",
        ),
        (
            "    def execute(self, requests): return 'x'",
            "Expected a list in the execute return, found type '<class 'str'>'.",
        ),
        (
            "    def execute(self, requests): return [pb_utils.InferenceResponse()]",
            "Number of InferenceResponse objects do not match the number of InferenceRequest "
            "objects. InferenceRequest(s) size is:2, and InferenceResponse(s) size is:1\n",
        ),
        (
            "    def execute(self, requests): return [None, 5]",
            "Expected an 'InferenceResponse' object in the execute function return list, found "
            "type '<class 'int'>'.",
        ),
    ],
)
def test_what_execute_must_return(write_model: Write, tmp_path: Path, code: str, text: str) -> None:
    assert refusal(pb_utils.TritonModelException, _execute, write_model, code) == text.replace(
        "{}", f"{tmp_path}/m/1/model.py"
    )


def test_a_decoupled_model_must_return_none(write_model: Write) -> None:
    code = "    def execute(self, requests): return [None] * len(requests)"

    assert refusal(
        pb_utils.TritonModelException, _execute, write_model, code, is_decoupled=True
    ) == (
        "Python model 'm_0_0' is using the decoupled mode and the execute function must return "
        "None."
    )


@pytest.mark.parametrize(
    ("execute", "in_flight", "slots", "warnings"),
    [("async def", 3, 3, 0), ("async def", 1, 1, 0), ("def", 3, 1, 1), ("def", 1, 1, 0)],
)
def test_only_coroutines_execute_several_batches_at_once(
    write_model: Write, execute: str, in_flight: int, slots: int, warnings: int
) -> None:
    lines: list[Any] = []
    instance = StubInstance(LOAD, lines.append)
    instance.max_inflight = in_flight
    code = f"class TritonPythonModel:\n    {execute} execute(self, requests): pass"
    model = _load(write_model(code))

    model.initialize("{}", instance)

    assert (slots, warnings) == (model.slots, len(lines))


def test_a_coroutine_in_the_background_is_kept_while_it_waits(write_model: Write) -> None:
    code = """
import asyncio
class TritonPythonModel:
    ends = []
    async def execute(self, requests):
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.ends.append(requests)
"""
    model = _load(write_model(code))
    model.initialize("{}", _instance(is_decoupled=True))

    model.execute([])
    model.run_background(0.0)
    gc.collect()

    assert model.model_class.ends == []
    model.finalize()
    assert model.model_class.ends == [[]]


def test_a_task_is_background_until_its_callbacks_have_run(write_model: Write) -> None:
    model: Any = _load(
        write_model(
            """
            import asyncio
            class TritonPythonModel:
                async def execute(self, requests):
                    # as a message does that comes in the turn in which the coroutine ends
                    asyncio.get_running_loop().stop()
            """
        )
    )
    instance, ended = _instance(), []  # type: StubInstance, list[Any]
    instance.max_inflight = 2
    model.initialize("{}", instance)
    model.execute([]).add_done_callback(ended.append)

    model.run_background(None)

    assert ([], True) == (ended, model.has_background())
    model.finalize()
    assert 1 == len(ended)
