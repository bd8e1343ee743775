"""The server that tests share is as empty for each of them as for the first."""

from __future__ import annotations

import pytest

from tests.system.shared_server import SharedServer

pytestmark = pytest.mark.system


def test_what_a_stub_has_written_after_its_test_is_gone(shared_server: SharedServer) -> None:
    shared_server.journal.write_text("of a test before\n")

    with shared_server.lent() as server:
        assert not server.journal.exists()
        server.journal.write_text("of this file\n")
        with server.lent():
            assert "of this file\n" == server.journal.read_text()
    assert not shared_server.journal.exists()
