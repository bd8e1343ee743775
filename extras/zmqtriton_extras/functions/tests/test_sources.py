"""Files of functions are known by their text."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import ROOT
from zmqtriton.config.backends import complete_backend
from zmqtriton.config.pbtxt import parse_text
from zmqtriton_extras.functions.sources import models_in

FUNCTION = "from zmqtriton import model\n@model\ndef caption(a: int) -> int: ..."


@pytest.mark.parametrize("module", ["sources", "example_requests"])
def test_readers_and_the_supervisor_need_no_numpy(module: str) -> None:
    name = f"zmqtriton_extras.functions.{module}"
    code = f"import sys, {name}; print(*{{'numpy', '{name}'}} & sys.modules.keys())"
    paths = os.pathsep.join(str(ROOT / root) for root in (".", "stub", "frontends", "extras"))
    answer = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": paths},
    )

    assert f"{name}\n" == answer.stdout


@pytest.mark.parametrize(
    ("text", "source", "backend"),
    [
        ("", FUNCTION, "functions"),
        ('backend: "onnxruntime"', FUNCTION, "onnxruntime"),
        ('platform: "onnxruntime_onnx"', FUNCTION, "onnxruntime"),
        ("", "class TritonPythonModel: ...", "onnxruntime"),
    ],
)
def test_a_function_goes_before_the_weights_next_to_it(
    tmp_path: Path, text: str, source: str, backend: str
) -> None:
    version = tmp_path / "1"
    version.mkdir()
    (version / "model.onnx").touch()
    (version / "model.py").write_text(source)
    config = parse_text(text)

    complete_backend(config, "caption", tmp_path)

    file = "model.py" if backend == "functions" else "model.onnx"
    assert (backend, file) == (config.backend, config.default_model_filename)


#: Decorators that nest deeper than Python's own printer of trees can follow.
DEEP = (
    f"import zmqtriton\n@x{'.a' * 900}\ndef b(): ...\n@x({'+'.join(['1'] * 900)})\ndef c(): ...\n"
)
DEEP += f"@(x{' + y' * 900})\ndef d(): ...\n"
NAMED = "@zmqtriton.model(name='b')\ndef c(): ..."


@pytest.mark.parametrize(
    ("names", "source"),
    [
        (("caption",), "from zmqtriton import model\n@model\ndef caption(): ..."),
        (("caption",), "from zmqtriton import Failed, model as m\n@m(batch=2)\nclass Caption: ..."),
        (("a",), "import zmqtriton as z\n@z.model\nasync def a(): ..."),
        (("a", "b"), "import zmqtriton\n@zmqtriton.model\ndef a(): ...\n" + NAMED),
        ((), "from zmqtriton import model\n@model\nclass TritonPythonModel: ..."),
        ((), "from other import model  # zmqtriton\n@model\ndef caption(): ..."),
        ((), "from zmqtriton import model\ndef caption(): ..."),
        ((), "from zmqtriton import model\ndef caption(:"),
        ((), "class TritonPythonModel: ..."),
        (("a",), f"{DEEP}@zmqtriton.model\ndef a(): ..."),
        (("a",), "import zmqtriton\n@zmqtriton.model(name=5)\ndef a(): ..."),
        (("a",), "import zmqtriton\n@zmqtriton.model(name=names.a)\ndef a(): ..."),
    ],
)  # fmt: skip
def test_names_of_models_are_read_without_an_import(
    tmp_path: Path, names: tuple[str, ...], source: str
) -> None:
    file = tmp_path / "file.py"
    file.write_text(source)

    assert names == models_in(file)
