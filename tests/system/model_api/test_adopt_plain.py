"""Changed code of models without INSTANCES: a single process that hands over by adopt()."""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import psutil
import pytest

from tests.standard.ctl.system.commands import OPTION, ctl
from tests.support.scripted import extend_config, string_parameter
from tests.support.server import Server
from tests.support.waiting import eventually
from tests.system.model_api import test_adopt
from tests.system.model_api.test_adopt import Model, asked_all_the_time

pytestmark = [pytest.mark.system, pytest.mark.server()]

PLAIN = test_adopt.CONFIG.replace("count: 2", "count: 1").partition("parameters")[0]
#: Also counts the modules of earlier and present code that the process has.
CODE = test_adopt.CODE.replace("import os, time", "import gc, os, time, types").replace(
    "{helper.WORD}",
    "{helper.WORD} {sum(type(m) is types.ModuleType and m.__name__ == 'helper' "
    "for m in gc.get_objects())}",
)
_ADOPT = "    def adopt(self, old):"


@pytest.fixture
def serve(
    server: Server, request: pytest.FixtureRequest
) -> Iterator[Callable[[str], test_adopt.Model]]:
    models: list[Model] = []

    def add(more: str = "") -> Model:
        name = re.sub(r"\W", "_", request.node.name)[-50:]
        models.append(Model(server, name, PLAIN + more, CODE))
        return models[0]

    yield add
    pids = models[0].hosts()
    server.control_model("unload", models[0].name)
    eventually(lambda: not any(psutil.pid_exists(pid) for pid in pids), 60)


def _has_come(answers: list[list[str]], word: str) -> bool:
    return bool(answers) and answers[-1][0] == word


def hang(model: Model) -> None:
    """Let the next adopt() wait for a file, which it shows by another."""
    gate = model.directory / "gate"
    waits = f"""
        open("{gate}.begun", "w").close()
        while not os.path.exists("{gate}"): time.sleep(0.01)"""
    model.edit(_ADOPT, f"{_ADOPT}{waits}")
    model.edit('f"first', 'f"second')


def test_thirty_edits_keep_the_weights_and_no_earlier_modules(
    serve: Callable[..., Model],
) -> None:
    model = serve()
    before, (pid,) = model.ask(), model.hosts()

    for number in range(30):
        model.edit('f"first', f'f"first{number}-first')
        model.edit('= args["model_instance_name"]', '= args["model_instance_name"] + ""')
        model.load()

    answer = model.ask()
    assert answer[0].startswith("first29-first28-")
    assert [str(pid), before[2], "9", "one"] == answer[1:5]
    assert int(answer[5]) <= 4  # the first, the last two, and one that is not collected yet
    assert (True, "what adopt() has taken from the earlier instances") == model.kept()
    assert 1 == model.logged(f"{model.name}_0_0 is initialized")


@pytest.mark.server(
    own=True, options=["--model-control-mode=explicit", "--reload", OPTION], models=[]
)
def test_a_saved_file_serves_with_the_same_weights(serve: Callable[..., Model]) -> None:
    model = serve()
    before = model.ask()

    with asked_all_the_time(model) as answers:
        for old, new in (("first", "second"), ("second", "third")):
            model.edit(f'f"{old}', f'f"{new}')
            eventually(partial(_has_come, answers, new), 60)

    assert {(before[1], before[2], "9")} == {(a[1], a[2], a[3]) for a in answers}


def test_a_hung_adopt_is_given_up_while_the_earlier_code_serves(
    serve: Callable[..., Model],
) -> None:
    model = serve(string_parameter("max_load_seconds", "3"))
    (pid,) = model.hosts()
    hang(model)

    with asked_all_the_time(model) as answers:
        model.load()

    assert "second" == model.ask()[0]
    assert {"first", "second"} >= {answer[0] for answer in answers}
    assert re.search(r"line \d+ in adopt", model.server.log_text())
    is_kept, text = model.kept()
    assert (False, True) == (is_kept, "longer than max_load_seconds" in text), text
    eventually(lambda: not psutil.pid_exists(pid), 60)


def test_an_adopt_that_returns_after_it_was_given_up_changes_nothing(
    serve: Callable[..., Model],
) -> None:
    model = serve(string_parameter("max_load_seconds", "3"))
    hang(model)
    model.edit("def initialize(self, args):", "def initialize(self, args):\n        0 / 0")

    model.load("division by zero")  # neither adopts nor loads
    answer, (pid,) = model.ask(), model.hosts()
    (model.directory / "gate").touch()
    model.edit("\n        0 / 0", "")
    model.load()

    assert ["first", str(pid), answer[2]] == answer[:3]
    assert ["second", str(pid), answer[2], "9"] == model.ask()[:4]


def test_unloading_amid_an_adopt_ends_the_process(serve: Callable[..., Model]) -> None:
    model = serve()
    (pid,) = model.hosts()
    hang(model)
    load = threading.Thread(target=model.server.control_model, args=("load", model.name))
    load.start()
    eventually((model.directory / "gate.begun").exists, 60)

    model.server.control_model("unload", model.name)

    load.join()
    eventually(lambda: not psutil.pid_exists(pid), 60)


#: Sends its text, and the same once there is a file.
_STREAMS = """
    def execute(self, requests):
        for request in requests:
            sender, gate = request.get_response_sender(), __file__ + ".gate"
            for number in range(2):
                while number and not os.path.exists(gate): time.sleep(0.01)
                out = np.array([f"first {id(self.weights)}"], object)
                answer = pb_utils.InferenceResponse([pb_utils.Tensor("TEXT", out)])
                sender.send(answer)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def test_an_open_stream_ends_on_the_code_that_it_began_with(serve: Callable[..., Model]) -> None:
    model = serve("model_transaction_policy { decoupled: true }")
    model.edit("    def execute(", f"{_STREAMS.lstrip(chr(10))}\n    def of_one(")
    model.load()
    events = stream(model)
    first = next(events)

    model.edit('f"first', 'f"second')
    model.load()
    (model.directory / "model.py.gate").touch()

    assert first.startswith("first")
    assert [first] == list(events)
    assert [first.replace("first", "second")] * 2 == list(stream(model))


def stream(model: Model) -> Iterator[str]:
    """Yield the texts of a request's responses, as they come."""
    with closing(http.client.HTTPConnection("localhost", model.server.http_port)) as connection:
        connection.request("POST", f"/v2/models/{model.name}/generate_stream", '{"IN": 1}')
        for line in connection.getresponse():
            if line.startswith(b"data: "):
                yield json.loads(line[6:])["TEXT"]


def test_two_edits_at_once_end_with_the_last(serve: Callable[..., Model]) -> None:
    model = serve()
    before = model.ask()
    loads = []
    for old, new in (("first", "second"), ("second", "third")):
        model.edit(f'f"{old}', f'f"{new}')
        loads.append(threading.Thread(target=model.load))
        loads[-1].start()
    for load in loads:
        load.join()

    assert ["third", *before[1:5]] == model.ask()[:5]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (string_parameter("INSTANCES", "processes"), "INSTANCES is 'processes'"),
        ("instance_group { count: 1 }", "each of its 2 instances has its own process"),
        ("sequence_batching { }", "its requests are bound to instances"),
    ],
)
def test_the_reason_why_nothing_is_adopted_is_told(
    serve: Callable[..., Model], more: str, why: str
) -> None:
    model = serve(more)
    model.edit('f"first', 'f"second')
    model.load()

    assert (False, True) == (model.kept()[0], why in model.kept()[1])
    assert why in ctl(model.server, "explain", model.name).stdout
    assert not model.hosts()


def test_more_than_code_has_changed(serve: Callable[..., Model]) -> None:
    model = serve()
    extend_config(model.server, model.name, string_parameter("unrelated", "1"))
    model.load()

    assert (False, "adopt() is for a change of code alone, of the version that serves") == (
        model.kept()
    )


def test_a_class_that_gets_adopt_is_loaded_again_once(serve: Callable[..., Model]) -> None:
    model = serve()
    model.edit("def adopt(", "def take(")
    model.load()
    assert not model.hosts()

    model.edit("def take(", "def adopt(")
    model.load()
    weights = model.ask()[2]
    model.edit('f"first', 'f"second')
    model.load()

    assert ["second", weights] == [model.ask()[0], model.ask()[2]]
