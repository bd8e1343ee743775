"""The settings that every process of the server gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zmqtriton.options import Options
from zmqtriton.supervisor.machine import listeners
from zmqtriton.supervisor.machine.directories.runtime import RuntimeDirectory
from zmqtriton.supervisor.machine.process_settings import process_settings


@pytest.mark.parametrize(("named", "bound"), [("LOCALHOST", "127.0.0.1"), ("0.0.0.0", "0.0.0.0")])
def test_where_http_listens_is_an_address_whatever_the_option_calls_it(
    named: str, bound: str, tmp_path: Path
) -> None:
    no_others: dict[str, Any] = {"allow_grpc": False, "allow_metrics": False}
    options = Options(http_address=named, http_port=0, **no_others)
    sockets = listeners.bind_all(options)

    settings = process_settings(options, RuntimeDirectory(tmp_path, -1), None, sockets)
    listeners.close_all(sockets)

    assert (named, bound) == settings.frontend.http[1:3]
