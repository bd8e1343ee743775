"""`zmqtriton run`: one file is served, what is printed can be typed, and saves are noticed."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.server import ROOT
from tests.support.waiting import eventually
from zmqtriton.main import main

pytestmark = pytest.mark.slow

CODE = """
import triton_python_backend_utils as pb_utils
import helper

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]})
        config.set_max_batch_size(0)
        return config

    def initialize(self, args):
        self.directory = args["model_repository"]

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        if x[0] < 0:
            raise ValueError(self.directory)
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x * helper.FACTOR)])
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "scale.py"
    path.write_text(CODE)
    (tmp_path / "helper.py").write_text("import numpy as np\nFACTOR = np.float32(2)\n")
    return path


class Running:
    """A server that somebody develops with."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output

    @property
    def text(self) -> str:
        return self._output.read_text()

    def lines(self, command: str) -> list[list[str]]:
        """The words of the lines that are printed to be typed."""
        commands = re.findall(rf"^  (\S*{command} .*)$", self.text, re.MULTILINE)
        return [shlex.split(line) for line in commands]

    def ask(self, *values: float) -> tuple[int, dict[str, list[float]]]:
        """Ask as the line with curl does, with these values."""
        words = self.lines("curl")[0]
        document = json.loads(words[words.index("-d") + 1])
        if values:
            document["inputs"][0] |= {"shape": [len(values)], "data": values}
        try:
            url, body = f"http://{words[2]}", json.dumps(document).encode()
            with urllib.request.urlopen(url, body, timeout=30) as answer:
                outputs = json.load(answer)["outputs"]
                return 200, {one["name"]: one["data"] for one in outputs}
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)


@contextmanager
def run(directory: Path, *words: str) -> Iterator[Running]:
    output = directory / "output.log"
    ports = ["--http-port=0", "--grpc-port=0", "--metrics-port=0"]
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "zmqtriton", "run", *words, *ports],
            stdout=stream,
            stderr=stream,
            cwd=directory,
            env=_environment(),
        )
    try:
        pattern = re.compile("Started HTTPService(?s:.*)(is served|is not served yet)")
        eventually(lambda: pattern.search(output.read_text()), 60, "what to do, after the port")
        yield Running(process, output)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def _environment() -> dict[str, str]:
    roots = os.pathsep.join(str(ROOT / root) for root in (".", "stub", "frontends"))
    variables = {**os.environ, "PYTHONPATH": roots}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    return variables


def save(path: Path, text: str) -> None:
    """Write as editors do: another file, which is renamed."""
    draft = path.with_suffix(".tmp")
    draft.write_text(text)
    draft.rename(path)


@pytest.mark.system
def test_a_file_is_served_and_every_save_is_loaded(file: Path) -> None:
    helper = file.with_name("helper.py")
    with run(file.parent, "scale.py", "--reload") as server:
        assert (200, {"Y": [2, 2, 2]}) == server.ask()
        [[_, *words]] = server.lines("zmqtriton-ctl")
        ctl = [sys.executable, "-m", "zmqtriton.ctl.main", *words]
        finished = subprocess.run(
            ctl, capture_output=True, text=True, env=_environment(), check=True
        )
        assert "Y  FP32" in finished.stdout

        save(helper, "import numpy as np\nFACTOR = np.float32(30)\n")
        eventually(lambda: server.ask() == (200, {"Y": [30, 30, 30]}), 30, "the new helper")

        for factor in range(31, 33):  # each as long as the one before, several within a second
            save(helper, f"import numpy as np\nFACTOR = np.float32({factor})\n")
            saved = (200, {"Y": [factor] * 3})
            eventually(lambda saved=saved: server.ask() == saved, 30, "each save")  # type: ignore[misc]
        assert not list(file.parent.glob("__pycache__"))

        save(file, CODE + "\nx = (")
        eventually(lambda: "was never closed" in server.text, 30, "the reason")
        eventually(lambda: "still served" in server.text.splitlines()[-1], 30, "the last line")
        assert (200, {"Y": [32]}) == server.ask(1)

        save(file, CODE.replace("x[0] < 0", "x[0] < -7"))
        eventually(lambda: server.ask(-1) == (200, {"Y": [-32]}), 30, "the repaired file")
        status, refusal = server.ask(-8)
    assert 500 == status
    assert str(file.parent) in str(refusal), "the model's directory is the file's"
    assert f"{file}(" in str(refusal), "the traceback names the file that is edited"


@pytest.mark.long(
    "extras/authoring/run/test_run.py::test_a_file_is_served_and_every_save_is_loaded"
)
@pytest.mark.system
def test_a_model_that_fails_at_start_is_awaited_and_nothing_is_left_of_it(file: Path) -> None:
    (file.parent / "helper.py").write_text("raise RuntimeError('not yet')")
    before = sorted(path.name for path in file.parent.iterdir())
    sockets = file.parent / "sockets"

    with run(
        file.parent, str(file), "--name=m", "--reload", f"--runtime-directory={sockets}"
    ) as server:
        eventually(lambda: "m is not served yet" in server.text, 30, "the guide")
        save(file.with_name("helper.py"), "FACTOR = 1\n")
        eventually(lambda: "successfully loaded 'm'" in server.text, 30, "the repaired helper")
        server.process.kill()
        eventually(lambda: not sockets.exists(), 30, "the end of everything")

    after = sorted(path.name for path in file.parent.iterdir())
    assert [*before[:1], "output.log", *before[1:]] == after


@pytest.mark.long(
    "extras/authoring/run/test_run.py::test_a_file_is_served_and_every_save_is_loaded",
    "extras/authoring/run/test_run_guide.py::test_the_address_can_be_typed",
)
@pytest.mark.system
def test_a_models_directory_is_served_and_a_neighbour_when_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert 0 == main(["new", "scale", "--class"])
    assert 0 == main(["new", "caller", "--bls", "scale"])
    with run(tmp_path, "models/caller") as server:
        assert "successfully loaded 'scale'" not in server.text
        assert (200, {"Y": [2, 2, 2]}) == server.ask()
        eventually(lambda: "successfully loaded 'scale'" in server.text, 30, "the neighbour")
        assert "zmqtriton-ctl load" in server.text
        assert "Repository Agent" not in server.text, "tables would hide what to type next"


@pytest.mark.parametrize(
    ("name", "code", "sentence"),
    [
        ("a.py", "class TritonPythonModle: pass", "class TritonPythonModel; is it the class 'Trit"),
        ("a.py", "x = 1", "there is no class TritonPythonModel; 'zmqtriton new NAME' writes"),
        ("a.py", "x = (", "a.py:1: SyntaxError: '(' was never closed"),
        ("a.py", "class TritonPythonModel: pass", "does not say what its inputs and outputs are"),
        ("json.py", CODE, "has the name of a module of Python"),
        ("a.txt", CODE, "is no Python file"),
        ("models/m/1/model.py", CODE, "is no model; if it has models in it, zmqtriton --model-rep"),
    ],
)
def test_what_cannot_be_served_is_refused_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, code: str, sentence: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)

    assert 1 == main(["run", str(tmp_path / name.partition("/")[0])])

    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert sentence in line


def test_a_name_that_is_none_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == main(["run", str(file), "--name=a/b"])

    assert "error: 'a/b' is no name for a model" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == main(["run", "/nowhere/scale.py"])

    assert "error: there is no file /nowhere/scale.py" in capsys.readouterr().err
