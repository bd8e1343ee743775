"""The process that a model's instances are forks of is killed, at each moment of its life."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import deaths
from tests.support.server import Server

pytestmark = [
    pytest.mark.system,
    pytest.mark.long(
        "system/model_api/test_instances_forks.py::test_instances_share_what_was_preloaded_and_are_restarted_from_it"
    ),
]


def test_a_killed_template_costs_no_request_and_no_instance(tmp_path: Path) -> None:
    options = deaths.TEMPLATE_OPTIONS
    server = Server(tmp_path / "s", models=["journal"], frontends=(), options=options)
    deaths.use_forks(server)
    with server, deaths.template_kills(server) as kill_at_each_moment:
        times = kill_at_each_moment()

    assert len(deaths.TEMPLATE_MOMENTS) == len(times)
