from __future__ import annotations

import pytest

from zmqtriton_floor.logs import LogOptions
from zmqtriton_frontends.process import request_log


@pytest.mark.parametrize(("verbose", "is_on"), [(0, False), (1, True)])
def test_requests_are_logged_where_verbose_lines_are_written(
    verbose: int, is_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_log, "is_on", not is_on)

    request_log.follow(LogOptions(verbose=verbose))

    assert is_on == request_log.is_on
