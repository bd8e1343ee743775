"""The server that tests share is as empty for each of them as for the first."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.server import Server
from tests.system.shared_server import SharedServer

pytestmark = pytest.mark.system
_NEEDS: dict[str, Any] = {"options": ("--id=one",), "frontends": ()}
#: The servers that tests of this file have had by the same mark.
_pids = set[int]()


def test_what_a_stub_has_written_after_its_test_is_gone(shared_server: SharedServer) -> None:
    shared_server.journal.write_text("of a test before\n")

    with shared_server.lent() as server:
        assert not server.journal.exists()
        server.journal.write_text("of this file\n")
        with server.lent():
            assert "of this file\n" == server.journal.read_text()
    assert not shared_server.journal.exists()


@pytest.mark.server(**_NEEDS)
@pytest.mark.parametrize("number", [1, 2])
def test_tests_that_need_the_same_share_a_server(server: Server, number: int) -> None:
    _pids.add(server.pid)

    assert [server.pid] == [*_pids]
    assert "--id=one" in server.command


@pytest.mark.server(**_NEEDS, own=True)
def test_one_that_changes_its_server_has_its_own(server: Server) -> None:
    assert server.pid not in _pids
