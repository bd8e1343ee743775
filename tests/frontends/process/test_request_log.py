from __future__ import annotations

import pytest

from zmqtriton_frontends.process import request_log


@pytest.mark.parametrize(("settings", "is_on"), [({}, False), ({"log_verbose": 1}, True)])
def test_requests_are_logged_where_verbose_lines_are_written(
    settings: dict[str, int], is_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_log, "is_on", not is_on)

    request_log.follow(settings)

    assert is_on == request_log.is_on
