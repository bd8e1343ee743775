"""A server takes the place of another while clients of every protocol ask: no request fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.replacements.libraries import library_crowd
from tests.faults.replacements.ways import (
    BySystemd,
    InOneDirectory,
    OneByOne,
    OnOnePort,
    Way,
)
from tests.support.needs import find_tool
from tests.system.replacements.replacing import FEW, FEWEST, SMALL, lost_in, replace_once

pytestmark = pytest.mark.system


@pytest.mark.row("D46", "L14", "--reuse-http-port", "--reuse-grpc-port")
@pytest.mark.parametrize(
    "kind",
    [
        OnOnePort,
        pytest.param(
            InOneDirectory,
            marks=pytest.mark.long(
                "system/replacements/test_directories.py::test_a_server_is_replaced_by_a_command"
            ),
        ),
    ],
)
def test_a_server_is_replaced_without_a_failed_request(
    tmp_path: Path, kind: type[OnOnePort] | type[InOneDirectory], monkeypatch: pytest.MonkeyPatch
) -> None:
    way = kind(tmp_path, SMALL)

    replace_once(way, FEWEST, monkeypatch)

    assert "Traceback" not in way.log_text()
    assert "not taken over" not in way.log_text()


@pytest.mark.long(
    "system/replacements/test_under_load.py::test_a_server_is_replaced_without_a_failed_request",
    "system/operations/test_socket_activation.py::test_a_restart_fails_no_request",
    "system/replacements/test_directories.py::test_a_server_is_replaced_by_a_command",
)
@pytest.mark.parametrize("kind", [BySystemd, OnOnePort, InOneDirectory, OneByOne])
def test_clients_of_every_kind_lose_nothing(
    tmp_path: Path, kind: type[Way], monkeypatch: pytest.MonkeyPatch
) -> None:
    way = kind(tmp_path)

    crowd = replace_once(way, FEW, monkeypatch)

    assert "Traceback" not in way.log_text()
    assert lost_in(crowd) == 0 or kind in (BySystemd, OnOnePort)
    assert "not taken over" not in way.log_text()


@pytest.mark.long(
    "system/replacements/test_under_load.py::test_a_server_is_replaced_without_a_failed_request"
)
def test_programs_that_people_use_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_tool("h2load", package="nghttp2-client")
    find_tool("curl")

    replace_once(InOneDirectory(tmp_path), library_crowd(), monkeypatch)
