"""Models in directories with odd names, and the add-on of tests/repo/test_laws.py, served."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repo.test_laws import write_room
from tests.support.needs import find_tool, skip_missing
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

_NAME = "modèle"


def _latin_1(directory: Path) -> dict[str, str]:
    """Return the variables of a locale of ISO-8859-1, which is made here."""
    name = "xx_XX.ISO-8859-1"
    words = ["-c", "-i", "POSIX", "-f", "ISO-8859-1", str(directory / name)]
    # it warns of what a locale of a country would have
    subprocess.run([find_tool("localedef"), *words], capture_output=True, check=False)
    if not (directory / name / "LC_CTYPE").exists():
        skip_missing("the charmap ISO-8859-1 (Debian's package locales)")
    return {"LOCPATH": str(directory), "LC_ALL": name}


@pytest.mark.long(
    "supervisor/machine/reading/test_readers.py::test_names_that_are_no_utf_8_arrive",
)
def test_a_name_is_utf_8_in_any_locale_and_another_is_left_out_with_a_word(tmp_path: Path) -> None:
    server = Server(tmp_path / "s", environment=_latin_1(tmp_path), frontends=())
    model = server.add_model("add_sub", _NAME)
    config = model / "config.pbtxt"
    config.write_text(config.read_text("utf-8").replace('"add_sub"', f'"{_NAME}"'), "utf-8")
    os.mkdir(os.path.join(os.fsencode(server.repository), b"other\xe8"))

    with server:
        status, index = server.request_json("/v2/repository/index", {})
        eventually(lambda: "is left out: its name is not UTF-8" in server.log_text(), 60)

    assert "models/other" in server.log_text()
    assert (200, [_NAME]) == (status, [each["name"] for each in index])
    assert "READY" == index[0]["state"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    place = tmp_path_factory.mktemp("room")
    write_room(place)
    about = place / "echo-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: echo\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[zmqtriton.addons]\necho = echo\n")
    roots = os.pathsep.join((str(place), os.environ.get("PYTHONPATH", "")))
    with Server(place / "s", environment={"PYTHONPATH": roots}, frontends=()) as server:
        yield server


def test_an_honest_room_serves(server: Server) -> None:
    answer = server.exchange("/echo", b'{"times":2}')

    assert (200, b'{"times":2}{"times":2}') == (answer.status, answer.body)


@pytest.mark.parametrize(
    "body",
    [
        b'["sesame"]',
        b'"sesame"',
        b'{"times":"sesame"}',
        b'{"times":NaN}',
        b'{"times":1e400}',
        b'{"times":2.5}',
        b'{"times":1001}',
        b'{"times":"sesame"',
        b"[" * 5000 + b"]" * 5000,
    ],
)
def test_it_refuses_what_is_wrong_and_shows_no_value(server: Server, body: bytes) -> None:
    answer = server.exchange("/echo", body)

    assert 400 == answer.status
    assert len(answer.body) < 4096
    assert b"sesame" not in answer.body
