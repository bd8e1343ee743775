"""Functions and classes whose values stay when their file is loaded again."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPResponse
from pathlib import Path

import pytest

from tests.support.waiting import eventually
from zmqtriton_extras.authoring.tests.run.test_run import run, save

pytestmark = pytest.mark.system

CLASS = """
import os
from pathlib import Path
from zmqtriton import model

class Net:
    def __init__(self, text):
        self.text = text

def load():
    return Net(Path(__file__).with_name("weights.txt").read_text())

@model(keeps=True, instances=2)
class Say:
    def __init__(self):
        self.by, self.net = os.getpid(), load()

    def __call__(self, word: str) -> list[str]:
        assert isinstance(self, Say) and isinstance(self.net, Net)
        return ["first", str(self.by), self.net.text + word]
"""


VALUE = """
import os
from zmqtriton import kept, model

def load():
    return [os.getpid(), "old"]

table = kept(load)

@model
def say(word: str) -> list[str]:
    return ["first", str(table[0]), table[1] + word]
"""


@contextmanager
def asking(directory: Path, code: str) -> Iterator[Callable[[], list[str]]]:
    """Serve a file as `zmqtriton run --reload` does; yield a function that calls it."""
    with serving(directory, code) as url:
        yield lambda: json.loads(_open(f"{url}?word=!").read())["output"]


@contextmanager
def serving(directory: Path, code: str) -> Iterator[str]:
    (directory / "say.py").write_text(code)
    with run(directory, "say.py", "--reload") as running:
        found = re.search(r"http://(\S+:\d+)", running.text)
        assert found is not None
        yield f"http://{found[1]}/say"


def _open(url: str) -> HTTPResponse:
    answer: HTTPResponse = urllib.request.urlopen(url, b"", timeout=30)
    return answer


def test_a_class_keeps_what_its_init_has_made(tmp_path: Path) -> None:
    file, weights = tmp_path / "say.py", tmp_path / "weights.txt"
    weights.write_text("old")
    log = tmp_path / "output.log"
    with asking(tmp_path, CLASS) as ask:
        _, by, text = ask()
        assert "old!" == text

        # the log beside it grows all the time
        save(file, code := CLASS.replace("first", "second"))
        eventually(lambda: ask() == ["second", by, "old!"], 30)
        save(file, code := code.replace("second", "third"))
        eventually(lambda: ask() == ["third", by, "old!"], 30)

        # nothing can be listed in a broken file, and the next one is good
        save(file, code.replace("import os", "import os ("))
        eventually(lambda: "invalid syntax" in log.read_text(), 30)
        assert ["third", by, "old!"] == ask()
        save(file, code := code.replace("third", "3rd"))
        eventually(lambda: ask() == ["3rd", by, "old!"], 30)

        # a file that was opened, a part of what __init__ uses, __init__ itself
        weights.write_text("newer")
        save(file, code := code.replace("3rd", "fourth"))
        eventually(lambda: ask()[0] == "fourth", 30)
        assert ("newer!", True) == (ask()[2], by != ask()[1])
        save(file, code := code.replace("self.text = text", 'self.text = text + "+"'))
        eventually(lambda: ask()[2] == "newer+!", 30)
        save(file, code.replace("os.getpid()", '"me"'))
        eventually(lambda: ask()[1] == "me", 30)
    for why in ("weights.txt changed", "Net in say.py changed, and __init__", "__init__ changed"):
        assert f"is loaded again: {why}" in log.read_text()


def test_a_plain_function_keeps_values_that_are_declared(tmp_path: Path) -> None:
    file = tmp_path / "say.py"
    with asking(tmp_path, VALUE) as ask:
        by = ask()[1]

        save(file, code := VALUE.replace("first", "second"))
        eventually(lambda: ask() == ["second", by, "old!"], 30)

        save(file, code.replace('"old"', '"new"'))
        eventually(lambda: ask()[2] == "new!", 30)
        assert by != ask()[1]


def test_a_class_that_must_not_keep_runs_its_init_in_each_instance(tmp_path: Path) -> None:
    (tmp_path / "weights.txt").write_text("old")
    with asking(tmp_path, CLASS.replace("keeps=True", "keeps=False")) as ask:
        before = ask()[1]
        save(
            tmp_path / "say.py",
            CLASS.replace("keeps=True", "keeps=False").replace("first", "second"),
        )
        eventually(lambda: ask()[0] == "second", 30)
        assert before != ask()[1]


STREAMS = """
import os
from zmqtriton import End, model

@model(keeps=True, streams=8)
class Say:
    def __init__(self):
        self.by = os.getpid()

    def admit(self, word: str):
        return [word, 0]

    def step(self, states: list) -> list[str]:
        for state in states:
            state[1] += 1
        return [self.answer(*state) for state in states]

    def answer(self, word, count):
        is_open = os.path.exists(word)
        text = f"first {self.by} {is_open}"
        return End(text) if count > 1 and is_open else text if count == 1 else None
"""


def test_open_streams_end_on_the_code_that_they_began_with(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with serving(tmp_path, STREAMS) as url, closing(_open(f"{url}?word={gate}")) as stream:
        _, by, *_ = _text(stream)

        save(tmp_path / "say.py", STREAMS.replace("first", "second"))
        eventually(lambda: _text(_open(f"{url}?word=/")) == ["second", by, "True"], 30)

        gate.touch()
        assert ["first", by, "True"] == _text(stream)


def _text(stream: HTTPResponse) -> list[str]:
    """Return the words of the next event."""
    while not (line := stream.readline()).startswith(b"data:"):
        assert line
    return str(json.loads(line[5:])["output"]).split()
