"""Findings that only several models, or several repositories, show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.diagnosis.checking.test_models import GOOD, write
from zmqtriton.diagnosis.rules.models import CheckOptions
from zmqtriton.diagnosis.rules.repositories import Report, check_repositories

pytestmark = pytest.mark.slow

MODEL = "class TritonPythonModel:\n    def execute(self, requests): ...\n"
ENSEMBLE = """platform: "ensemble"
input [ {{ name: "X" data_type: TYPE_{0} dims: [ 1 ] }} ]
output [ {{ name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }} ]
ensemble_scheduling {{
  step [ {{
    model_name: "{1}"
    model_version: {2}
    input_map {{ key: "A" value: "X" }}
    output_map {{ key: "B" value: "Y" }}
  }} ]
}}
"""


def ensemble(member: str, datatype: str = "FP32", version: int = -1) -> str:
    return ENSEMBLE.format(datatype, member, version)


def checked(*directories: Path, names: tuple[str, ...] = ()) -> Report:
    return check_repositories(directories, CheckOptions(), names)


def test_an_ensemble_is_compared_with_what_it_calls(tmp_path: Path) -> None:
    write(tmp_path, "member", GOOD, MODEL)
    write(tmp_path, "good", ensemble("member"))
    write(tmp_path, "lost", ensemble("membre"))
    write(tmp_path, "unfit", ensemble("member", "INT8"))
    write(tmp_path, "late", ensemble("member", version=7))

    models = checked(tmp_path).models

    assert ["good", "late", "lost", "member", "unfit"] == list(models)
    assert [] == models["good"].errors
    (lost,) = models["lost"].errors
    assert (6, "member") == (lost.line, lost.suggestion)
    (unfit,) = models["unfit"].errors
    assert 8 == unfit.line
    assert "inconsistent data type" in unfit.text
    (late,) = models["late"].errors
    text = "ensemble 'late' depends on 'member' whose required version 7 is not loaded."
    assert (7, text) == (late.line, late.text)


def test_all_that_is_wrong_in_an_ensemble_is_told(tmp_path: Path) -> None:
    write(tmp_path, "member", GOOD, MODEL)
    text = ensemble("member", "INT8").replace('"B"', '"C"')
    write(tmp_path, "unfit", text)
    second = """, {
    model_name: "nobody"
    input_map { key: "A" value: "X" }
    output_map { key: "B" value: "Z" }
  } ]"""
    write(tmp_path, "mixed", text.replace(" ]\n}", f"{second}\n}}"))

    models = checked(tmp_path).models

    problems = [(p.line, p.text.partition(": ")[2] or p.text) for p in models["unfit"].errors]
    assert [
        (
            8,
            "inconsistent data type: TYPE_INT8 is inferred from model unfit while TYPE_FP32 is "
            "inferred from model member",
        ),
        (
            9,
            "in ensemble unfit, ensemble tensor Y is mapped from non-existing output C in model "
            "member",
        ),
    ] == problems
    assert [8, 9, 10, 11] == [problem.line for problem in models["mixed"].errors]


def test_ensembles_that_call_each_other_are_a_circle(tmp_path: Path) -> None:
    write(tmp_path, "one", ensemble("two"))
    write(tmp_path, "two", ensemble("one"))

    models = checked(tmp_path).models

    assert ["circular dependency between ensembles: one -> ... -> two -> one"] == [
        p.text for p in models["one"].errors
    ]
    assert 4 == models["two"].errors[0].line


def test_a_name_that_two_repositories_have_is_told_with_its_other_place(tmp_path: Path) -> None:
    for repository in ("a", "b"):
        write(tmp_path / repository, "m", GOOD, MODEL)
    (tmp_path / "c").symlink_to(tmp_path / "a")

    (problem,) = checked(*(tmp_path / name for name in "abc")).models["m"].errors

    text = "failed to poll model 'm': not unique across all model repositories"
    assert (text, str(tmp_path / "b" / "m")) == (problem.text, problem.path)


def test_names_of_models_that_are_asked_or_loaded_must_exist(tmp_path: Path) -> None:
    asks = 'parameters { key: "BLS_MODELS" value { string_value: "encoder, decodr" } }'
    write(tmp_path, "m", GOOD + asks, MODEL)
    for name in ("encoder", "decoder"):
        write(tmp_path, name, GOOD, MODEL)

    report = checked(tmp_path, names=("n", "encoder"))

    (warning,) = report.models["m"].warnings
    assert (4, "decoder") == (warning.line, warning.suggestion)
    (problem,) = report.errors
    assert "failed to poll model 'n': model not found in any model repository." == problem.text


def test_a_model_alone_is_checked_with_what_lies_beside_it(tmp_path: Path) -> None:
    write(tmp_path, "member", GOOD.replace("FP32", "INT8"), MODEL)
    one = write(tmp_path, "one", ensemble("member"))
    write(tmp_path, "two", ensemble("nobody"))

    report = checked(one)

    assert ["one"] == list(report.models)
    assert "inconsistent data type" in report.models["one"].errors[0].text


def test_models_may_be_called_by_a_number(tmp_path: Path) -> None:
    write(tmp_path, "1", GOOD, MODEL)

    assert ["1"] == list(checked(tmp_path).models)
    assert ["1"] == list(checked(tmp_path / "1").models)


def test_a_directory_that_cannot_be_listed_does_not_hide_the_others(tmp_path: Path) -> None:
    write(tmp_path / "a", "m", GOOD, MODEL)

    report = checked(tmp_path / "nowhere", tmp_path / "a")

    (problem,) = report.errors
    assert f"failed to stat file {tmp_path}/nowhere: there is no such directory" == problem.text
    assert ["m"] == list(report.models)


def test_code_is_read_and_never_run(tmp_path: Path) -> None:
    write(tmp_path, "fine", GOOD, MODEL)
    write(tmp_path, "runs", GOOD, f"open({str(tmp_path / 'ran')!r}, 'w')\n{MODEL}")
    write(tmp_path, "wrong", GOOD, "class TritonPythonModel:\n    def execute(self:\n")
    write(tmp_path, "other", GOOD, "class TritonPythonModle: ...\n")

    report = checked(tmp_path)

    problems = {name: one.problems for name, one in report.models.items()}
    assert [] == problems["fine"] + problems["runs"]
    assert not (tmp_path / "ran").exists()
    (wrong,) = problems["wrong"]
    assert (2, str(tmp_path / "wrong/1/model.py")) == (wrong.line, wrong.path)
    assert wrong.text.startswith("SyntaxError: ")
    missing = "AttributeError: module '1.model' has no attribute 'TritonPythonModel'"
    assert [f"{missing}; is it the class 'TritonPythonModle'?"] == [
        p.text for p in problems["other"]
    ]


def test_modules_that_this_python_lacks_are_named(tmp_path: Path) -> None:
    imports = "import nothing_of_this_name\nfrom other_nothing.a import b\nimport json, helper\n"
    write(tmp_path, "m", GOOD, imports + MODEL)
    (tmp_path / "m" / "1" / "helper.py").touch()
    write(tmp_path, "tries", GOOD, f"try:\n    import nothing\nexcept ImportError: ...\n{MODEL}")
    write(tmp_path, "finds", GOOD, f"import sys\nsys.path.append('x')\nimport nothing\n{MODEL}")

    models = checked(tmp_path).models

    warnings = [(one.line, one.text) for one in models["m"].warnings]
    assert [1, 2] == [line for line, _ in warnings]
    assert "has no module 'nothing_of_this_name', which is imported here" in warnings[0][1]
    assert [] == models["tries"].warnings + models["finds"].warnings


def test_tensors_that_the_configuration_lacks_are_named(tmp_path: Path) -> None:
    body = """class TritonPythonModel:
    def execute(self, requests):
        x = pb_utils.get_input_tensor_by_name(requests[0], "a")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Z", x)])]
"""
    write(tmp_path, "m", GOOD, body)
    write(tmp_path, "asks", GOOD, body.replace('"a"', '"A"') + "pb_utils.InferenceRequest()\n")

    models = checked(tmp_path).models

    assert [
        (3, "the configuration has no input 'a'; it names A"),
        (4, "the configuration has no output 'Z'; it names B"),
    ] == [(one.line, one.text) for one in models["m"].warnings]
    assert [] == models["asks"].warnings


def test_paths_of_routes_are_plain_and_nobody_else_s(tmp_path: Path) -> None:
    for name, path in (("a", "/shop"), ("b", "/shop/ocr"), ("c", "/v2/mine"), ("d", "/other")):
        parameter = f'parameters {{ key: "ROUTES_PATH" value {{ string_value: "{path}" }} }}\n'
        write(tmp_path, name, GOOD + parameter, MODEL)

    models = checked(tmp_path).models

    texts = {name: [problem.text for problem in one.errors] for name, one in models.items()}
    assert {
        "a": [],
        "b": ["ROUTES_PATH '/shop/ocr' is taken: the routes of model 'a' are at '/shop'"],
        "c": ["ROUTES_PATH '/v2/mine' is the server's own: it serves '/v2' itself"],
        "d": [],
    } == texts
    assert [4, 4] == [models[name].errors[0].line for name in ("b", "c")]
