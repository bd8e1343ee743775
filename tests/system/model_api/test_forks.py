"""Models that fork: what pb_utils offers works in the new process, and not in other programs.

What one fork asks and gets is recorded from Triton in tests/conformance/tables/model_api/forks.py.
"""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http

from tests.support import scripted
from tests.support.clients import infer_inputs
from tests.support.server import MODELS_DIRECTORY, Copy, Server
from tests.support.waiting import eventually

#: Makes its pool of forks before it is connected to anybody.
POOLED = """
import multiprocessing
import numpy as np
import triton_python_backend_utils as pb_utils

def ask(number):
    inputs = [
        pb_utils.Tensor(name, np.array([text], dtype=object))
        for name, text in (("SCRIPT", b"return [reply(text_of(request))]"),
                           ("ARGUMENT", str(number).encode()))
    ]
    asked = pb_utils.InferenceRequest(
        model_name="asked", inputs=inputs, requested_output_names=["TEXT"])
    return asked.exec().output_tensors()[0].as_numpy()[0].decode()

class TritonPythonModel:
    def initialize(self, args):
        self.pool = multiprocessing.get_context("fork").Pool(10)

    def execute(self, requests):
        texts = self.pool.map_async(ask, range(100)).get(60)
        text = np.array([" ".join(texts)], dtype=object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("TEXT", text)])]

    def finalize(self):
        self.pool.terminate()
"""
pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=[
            "scripted",
            Copy("scripted", "asked"),
            Copy("scripted", "streaming", scripted.DECOUPLED),
            Copy("scripted", "pooled", code=POOLED),
        ]
    ),
]
#: Has a fork of each request look at the input when the test says so.
LOOKING = """
import os
import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        array = requests[0].inputs()[0].as_numpy()
        first = int(array[0])
        if not os.fork():
            while not os.path.exists("PATH/go"):
                time.sleep(0.002)
            with open(f"PATH/{first}", "w") as file:
                file.write(str(sorted(set(array.tolist()))))
            os.rename(f"PATH/{first}", f"PATH/found{first}")
            os._exit(0)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", array[:1])])]
"""
#: A module that programs import which are no forks.
PROGRAM = """
import triton_python_backend_utils as pb_utils

def ask():
    pb_utils.InferenceRequest(
        model_name="asked", inputs=[], requested_output_names=[]).exec()

def measure():
    pb_utils.MetricFamily(name="program", description="", kind=pb_utils.MetricFamily.GAUGE)

def load():
    pb_utils.load_model("asked")

def said(what):
    pb_utils.Logger.log_warn("from another program")
    try:
        return globals()[what]()
    except pb_utils.TritonModelException as error:
        return str(error)
"""


def prepare(server: Server) -> None:
    (server.repository / "scripted" / "1" / "program.py").write_text(PROGRAM)


def forked(body: str) -> str:
    """Has a fork run the body and write what it returns."""
    return (
        "import os\nreading, writing = os.pipe()\n"
        "if not os.fork():\n    def run():\n"
        + textwrap.indent(textwrap.dedent(body).strip(), "        ")
        + "\n    try:\n        text = str(run())\n    except Exception as error:\n"
        "        text = f'{type(error).__name__}: {error}'\n"
        "    os.write(writing, text.encode())\n    os._exit(0)\n"
        "os.close(writing)\nread = b''\n"
        "while True:\n    part = os.read(reading, 65536)\n    read += part\n"
        "    if not part:\n        break\n"
        "os.wait()\nos.close(reading)\nreturn [reply(read.decode())]"
    )


@pytest.mark.row("A31")
def test_a_pool_that_was_made_in_initialize_asks_many_times_at_once(server: Server) -> None:
    assert " ".join(map(str, range(100))) == scripted.generate(server, "pooled", "")


@pytest.mark.row("A31")
def test_a_fork_reads_as_much_of_a_stream_as_it_likes(server: Server) -> None:
    script = """
        many = "sender = request.get_response_sender()\\n" \\
            "for number in range(1000):\\n    sender.send(reply(number))\\nsender.send(flags=FINAL)"
        whole = [answer_of(one) for one in ask("streaming", many).exec(decoupled=True)
                 if one.output_tensors()]
        part = ask("streaming", many).exec(decoupled=True)
        first = answer_of(next(iter(part)))
        del part
        return len(whole), whole[-1], first
    """

    assert "(1000, '999', '0')" == scripted.generate(server, "scripted", forked(script))


@pytest.mark.row("A31")
def test_a_fork_answers_as_a_stream(server: Server) -> None:
    script = """
        import os
        sender = request.get_response_sender()
        self.kept["sender"] = sender
        pid = os.fork()
        if not pid:
            for number in range(5):
                sender.send(reply(number))
            sender.send(flags=FINAL)
            try:
                sender.send(reply("late"))
            except pb_utils.TritonModelException as error:
                os.write(1, f"late: {error}\\n".encode())
            os._exit(0)
        os.waitpid(pid, 0)
    """

    assert ["0", "1", "2", "3", "4"] == scripted.generate_stream(server, "streaming", script)
    late = "late: Unable to send response. Response sender has been closed."
    eventually(lambda: late in server.log_text(), 60, "what comes after the end is refused")


@pytest.mark.row("A31")
def test_a_cancellation_reaches_a_fork(server: Server) -> None:
    path = server.scratch / "cancelled"
    script = f"""
        import os, time
        if not os.fork():
            os.write(1, b"a fork looks\\n")
            while not request.is_cancelled():
                time.sleep(0.01)
            open({str(path)!r}, "w").close()
            os._exit(0)
        os.wait()
    """

    with scripted.open_stream(server, "streaming", script):
        eventually(lambda: "a fork looks" in server.log_text(), 60, "the fork looks")
        assert not path.exists()

    eventually(path.exists, 60, "the fork has seen it")


@pytest.mark.row("A31")
def test_what_a_fork_measures_is_the_instances(server: Server) -> None:
    made = """
        self.kept["family"] = family = pb_utils.MetricFamily(
            name="forks_total", description="d", kind=pb_utils.MetricFamily.COUNTER)
        self.kept["metric"] = family.Metric(labels={"a": "b"})
    """
    counted = """
        self.kept["metric"].increment(1)
        mine = self.kept["family"].Metric(labels={"a": "mine"})
        mine.increment(5)
        total = mine.value()
        del mine, self.kept["metric"], self.kept["family"]
        return total
    """

    scripted.generate(server, "scripted", made + "\n        return [reply('made')]")
    answers = []
    for _ in range(3):
        answers.append(scripted.generate(server, "scripted", forked(counted)))
        # the fork says it on a connection of its own, so maybe after the model's answer
        eventually(lambda: 'a="mine"' not in server.metrics_text(), 60, "its series is gone")
    total = scripted.generate(server, "scripted", "return [reply(self.kept['metric'].value())]")

    assert ["5.0"] * 3 == answers, "what a fork makes ends with it"
    assert "3.0" == total, "and what it has copied does not"


@pytest.mark.row("A31")
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_another_program_is_refused_at_once_and_told_what_to_do(
    server: Server, method: str
) -> None:
    script = f"""
        import multiprocessing, program
        with multiprocessing.get_context({method!r}).Pool(1) as pool:
            said = pool.map_async(program.said, ["ask", "measure", "load"]).get(60)
        return [reply(" | ".join(map(str, said)))]
    """

    answers = scripted.generate(server, "scripted", script).split(" | ")

    assert 3 == len(answers)
    assert all("use multiprocessing's fork, or do this in" in answer for answer in answers), answers
    eventually(lambda: "from another program" in server.log_text(), 60, "the line is there")


@pytest.mark.row("A31")
def test_forks_leave_nothing_in_the_instance(server: Server) -> None:
    script = forked("return answer_of(ask('asked', 'return [reply(1)]').exec())")
    [stub] = server.stub_pids("scripted")
    assert "1" == scripted.generate(server, "scripted", script)
    before = _descriptors(stub)

    for _ in range(20):
        assert "1" == scripted.generate(server, "scripted", script)

    eventually(lambda: _descriptors(stub) <= before, 60, "no descriptor is left")


def test_a_fork_keeps_an_input_when_its_request_is_answered(tmp_path: Path) -> None:
    config = (MODELS_DIRECTORY / "identity_fp32/config.pbtxt").read_text()
    server = Server(tmp_path / "s", frontends=())
    code = LOOKING.replace("PATH", str(server.scratch))
    server.write_model("looking", config.replace("identity_fp32", "looking"), code)
    with server, tritonclient.http.InferenceServerClient(server.url[7:]) as client:
        for number in range(4):
            array = np.full(100_000, number, np.float32)
            client.infer("looking", infer_inputs(tritonclient.http, INPUT0=array))

        (server.scratch / "go").touch()

        paths = [server.scratch / f"found{number}" for number in range(4)]
        eventually(lambda: all(path.exists() for path in paths), 60, "the forks' looks")
        assert [f"[{number}.0]" for number in range(4)] == [path.read_text() for path in paths]


def _descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
