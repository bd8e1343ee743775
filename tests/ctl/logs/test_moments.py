"""Moments on the command line."""

from __future__ import annotations

from datetime import datetime

import pytest

from zmqtriton.ctl.logs.command import parse_moment

NOW_S = datetime(2026, 11, 22, 3, 20, 30).timestamp()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90s", datetime(2026, 11, 22, 3, 19)),
        ("1h30m", datetime(2026, 11, 22, 1, 50, 30)),
        ("0.5h", datetime(2026, 11, 22, 2, 50, 30)),
        ("2d", datetime(2026, 11, 20, 3, 20, 30)),
        ("03:15", datetime(2026, 11, 22, 3, 15)),
        ("3:15:10", datetime(2026, 11, 22, 3, 15, 10)),
        ("23:50", datetime(2026, 11, 21, 23, 50)),
        ("2026-11-21 23:50", datetime(2026, 11, 21, 23, 50)),
        ("2026-11-21T23:50:07", datetime(2026, 11, 21, 23, 50, 7)),
    ],
)
def test_a_moment_is_a_time_or_how_long_ago(text: str, moment: datetime) -> None:
    assert moment.timestamp() == parse_moment(text, NOW_S)


@pytest.mark.parametrize("text", ["", "10", "ten minutes", "25:00", "10x", "10m later"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_moment(text, NOW_S)
