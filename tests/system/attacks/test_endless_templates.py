"""A server that is told to end while a chat template has no end."""

from __future__ import annotations

import json
import select
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.support.raw_http import raw_request
from tests.support.server import Server
from tests.support.waiting import eventually
from tests.system.attacks.connections import connect

pytestmark = pytest.mark.system

ENDLESS = (
    "{% for i in range(99999) %}{% for j in range(99999) %}{{ 'a' * 100000 }}"
    "{% endfor %}{% endfor %}"
)


def renders(server: Server) -> bool:
    """Return whether a process of templates is busy."""
    for pid in server.pids()["http"]:
        for child in psutil.Process(pid).children(recursive=True):
            if sum(child.cpu_times()[:2]) > 0.5:
                return True
    return False


@pytest.mark.long(
    "extras/openai/templates/test_children.py::test_a_template_without_an_end_is_ended_and_keeps_no_other_model_waiting",
    "extras/openai/templates/test_children.py::test_who_leaves_ends_a_template_that_grows",
)
def test_a_template_without_an_end_keeps_no_server_from_ending(tmp_path: Path) -> None:
    server = Server(tmp_path / "s", options=["--allow-openai"], frontends=())
    (server.add_model("parrot", "endless") / "chat_template.jinja").write_text(ENDLESS)
    body = json.dumps({"model": "endless", "messages": [{"role": "user", "content": "x"}]})
    request = raw_request("POST", "/v1/chat/completions", body.encode())

    with server, ExitStack() as stack:
        clients = [connect(server, stack, request)]

        def is_rendered() -> bool:
            if select.select(clients[-1:], [], [], 0)[0]:
                # it was ended by its limit before a busy machine looked
                clients.append(connect(server, stack, request))
            return renders(server)

        eventually(is_rendered, 30, "the template is rendered")

        assert 0 == server.stop(30)
        assert clients[-1].recv(1 << 16).startswith(b"HTTP/1.1 500 ")
