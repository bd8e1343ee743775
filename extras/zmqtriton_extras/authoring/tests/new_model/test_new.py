"""`zmqtriton new`: what it writes is checked, tested, served and answered by its client."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.support.needs import ROOT, find_tool
from tests.support.server import Server
from zmqtriton.main import main
from zmqtriton_extras.authoring.testing import load_model

pytestmark = pytest.mark.slow

#: One of each kind, and one with every sort of tensor; what its client prints.
VARIETIES: dict[str, tuple[Sequence[str], str]] = {
    "plain": (("--class",), "Y [2.0, 2.0, 2.0]\n"),
    "tensors": (
        (
            "--input",
            "x:FP16:4",
            "--input",
            "TEXT:string",
            "--input",
            "IS_ON:BOOL:2,2",
            "--output",
            "TYPE:FP16:4",
            "--output",
            "TEXT:BYTES",
            "--output",
            "Z:BOOL:2,2",
            "--output",
            "WIDER:FP64:2,2",
            "--output",
            "OTHER:TYPE_INT8:7",
            "--output",
            "EMPTY:STRING:2",
            "--max-batch-size=8",
        ),
        "TYPE [[2.0, 2.0, 2.0, 2.0]]\nTEXT [[b'HELLO', b'HELLO', b'HELLO']]\n"
        "Z [[[False, False], [False, False]]]\nWIDER [[[1.0, 1.0], [1.0, 1.0]]]\n"
        "OTHER [[0, 0, 0, 0, 0, 0, 0]]\nEMPTY [[b'', b'']]\n",
    ),
    "streams": (("--decoupled",), "Y [1.0, 1.0, 1.0]\nY [2.0, 2.0, 2.0]\nY [3.0, 3.0, 3.0]\n"),
    "text-streams": (
        ("--decoupled", "--input=input:STRING:1", "--output=input:STRING:1", "--max-batch-size=2"),
        "input [[b'HELLO']]\n" * 3,
    ),
    "totals": (("--sequence",), "Y [1.0, 1.0, 1.0]\nY [2.0, 2.0, 2.0]\nY [3.0, 3.0, 3.0]\n"),
    "texts": (
        ("--sequence", "--input=T:STRING:1", "--output=T:BYTES:1", "--max-batch-size=4"),
        "T [[b'hello']]\nT [[b'hellohello']]\nT [[b'hellohellohello']]\n",
    ),
    "caller": (("--bls=plain",), "Y [2.0, 2.0, 2.0]\n"),
    "chatting": (("--chat",), "TELL ME A STORY \n"),
}
#: What the answer to a variety's curl has, where that is not Triton's.
_MADE = {"chatting": '"content":"TELL ME A STORY "'}
#: Runs clients one after the other in one process, since what they import takes most of their time.
_CLIENTS = """
import contextlib, io, json, runpy, sys
printed = {}
for name, *sys.argv in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        runpy.run_path(sys.argv[0], run_name="__main__")
    printed[name] = said.getvalue()
print(json.dumps(printed))
"""


@pytest.fixture(autouse=True)
def _current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*command: str | Path) -> str:
    """Return the output of a command, which must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "names",
    [
        ["plain", "totals"],
        pytest.param(
            [*VARIETIES],
            marks=pytest.mark.long(
                "extras/authoring/new_model/test_new.py::test_every_variety_is_checked_tested_served_and_answered"
            ),
        ),
    ],
    ids=["some", "all"],
)
@pytest.mark.system
def test_every_variety_is_checked_tested_served_and_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], names: list[str]
) -> None:
    varieties = {name: VARIETIES[name] for name in names}
    find_tool("curl")
    options = ["--model-control-mode=none", *["--allow-openai"] * ("chatting" in names)]
    server = Server(tmp_path / "server", options=options, frontends=["grpc"] * (len(names) > 2))
    curls = {}
    for name, (words, _) in varieties.items():
        assert 0 == main(["new", name, *words, f"--directory={server.repository}"])
        curls[name] = re.findall("curl .*", capsys.readouterr().out)

    assert 0 == main(["check", str(server.repository)])
    assert f"{len(varieties)} models, 0 problems, 0 warnings\n" == capsys.readouterr().out
    tests = sorted(tmp_path.glob("test_*.py"))
    run(sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
    assert [] == curls.get("tensors", [])  # JSON has no FP16
    with server:
        arguments = [
            [name, f"client_{name}.py", f"127.0.0.1:{port}"]
            for name in varieties
            for port in (server.grpc_port if "stream" in name else server.http_port,)
        ]
        printed = json.loads(run(sys.executable, "-B", "-c", _CLIENTS, json.dumps(arguments)))
        assert {name: expected for name, (_, expected) in varieties.items()} == printed
        for name in varieties:
            for curl in curls[name]:
                answer = run("sh", "-c", curl.replace("localhost:8000", server.url))
                assert _MADE.get(name, '"outputs"') in answer, answer
        both = '"sequence_id": 7, "sequence_start": true, "sequence_end": true'
        # the second sequence does not wait for the end of the first
        steps = [(7, "start", 1), (8, "start", 1), (7, "end", 2), (8, "end", 2)]
        for sequence, flag, total in steps:
            one = f'"sequence_id": {sequence}, "sequence_{flag}": true'
            curl = curls["totals"][0].replace("curl ", "curl --max-time 60 ").replace(both, one)
            answer = run("sh", "-c", curl.replace("localhost:8000", server.url))
            assert f'"data":[{total}.0,{total}.0,{total}.0]' in answer, answer


@pytest.mark.parametrize("name", ["mine", "test"])
def test_what_to_type_next_is_told(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["new", name, "--class"])

    said = capsys.readouterr().out
    assert f"\nmodels/{name}/1/model.py     the code\n" in said
    assert f"\n  pytest test_{name}.py\n" in said
    assert f"\n  zmqtriton run models/{name} --reload\n" in said


def test_a_request_that_nobody_could_read_is_left_to_the_client(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert 0 == main(["new", "image", "--input=PIXELS:UINT8:224,224,3", "--output=LABEL:STRING:1"])

    said = capsys.readouterr().out
    assert "curl" not in said
    assert "\n\n  python client_image.py\n" in said


def test_a_model_of_batches_computes_the_rows_of_all_requests_at_once() -> None:
    words = ["--max-batch-size=8", "--input=X:FP32:1", "--output=Y:FP32:1", "--output=Z:FP64:1"]
    assert 0 == main(["new", "rows", *words])

    with load_model(Path("models/rows")) as model:
        requests = [{"X": np.ones((rows, 1), np.float32) * rows} for rows in (1, 3, 2)]
        responses = model.execute(requests)

    arrays = [
        {name: array.tolist() for name, array in response.outputs.items()} for response in responses
    ]
    assert [{"Y": [[2 * n]] * n, "Z": [[n]] * n} for n in (1, 3, 2)] == arrays
    assert "joined(requests" in Path("models/rows/1/model.py").read_text("utf-8")


def test_the_tutorial_shows_what_is_written(tmp_path: Path) -> None:
    assert 0 == main(["new", "scale", "--class"])

    text = (ROOT / "docs/tutorial.md").read_text("utf-8")
    code = (tmp_path / "models/scale/1/model.py").read_text()
    config = (tmp_path / "models/scale/config.pbtxt").read_text()
    lines = [line for line in config.splitlines() if line and not line.startswith("#")]
    assert code.partition("\n\n")[2] in text
    assert "".join(f"    {line}\n" for line in lines) in text


@pytest.mark.parametrize(
    "taken", ["models/mine/config.pbtxt", "test_mine.py", "client_mine.py", "models/mine/2/a"]
)
def test_nothing_is_overwritten_and_nothing_is_written_then(
    taken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / taken).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / taken).write_text("mine")

    assert 1 == main(["new", "mine", "--class"])

    assert "is there already, nothing was written" in capsys.readouterr().err
    assert [tmp_path / taken] == [path for path in tmp_path.rglob("*") if path.is_file()]
    assert "mine" == (tmp_path / taken).read_text()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["../mine"], "a model's name has letters, digits, _ and -, and begins with a letter"),
        (["mine", "--input=X"], "the type is one of BOOL, UINT8, .* FP64, BYTES, STRING"),
        (["mine", "--input=X:FP23"], "'X:FP23': .* Did you mean 'FP32'?"),
        (["mine", "--input=X:BF16"], "the type is one of BOOL"),
        (["mine", "--input=a-b:FP32"], "the form is NAME:TYPE"),
        (["mine", "--output=Y:FP32:3,x"], "dimensions must be sizes with commas between them"),
        (["mine", "--output=Y:FP32:0"], "and -1 is any size"),
        (["mine", "--input=X:FP32", "--input=x:INT8"], "'X' is given twice, apart from capitals"),
        (["mine", "--max-batch-size=-1"], "--max-batch-size must be 0 or more"),
        (["mine", "--bls=other"], "models/other is not there; make it first: zmqtriton new other"),
        (["mine", "--bls=other", "--input=X:FP32"], "leave out --input"),
    ],
)
def test_what_is_wrong_is_told_with_what_is_right(
    words: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 1 == main(["new", *words])

    assert re.search(reason, capsys.readouterr().err)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--decoupled", "--sequence"])
def test_only_a_model_that_answers_once_can_be_called(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["new", "other", option])

    assert 1 == main(["new", "mine", "--bls=other"])

    assert "'other' must be a model that answers each request once" in capsys.readouterr().err
