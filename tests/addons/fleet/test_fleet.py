"""The fleet's thread, over an engine whose looks can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.waiting import eventually
from zmqtriton_addons.fleet.engine import Report
from zmqtriton_addons.fleet.fleet import Fleet
from zmqtriton_floor.errors import Unavailable


class _FailingOnce:
    """An engine without nodes, whose first look fails."""

    def __init__(self) -> None:
        self.looks = 0

    def start(self) -> None: ...

    def look(self) -> dict[str, Report]:
        self.looks += 1
        if self.looks == 1:
            raise OSError(28, "No space left on device")
        return {}

    def stop(self) -> None: ...


class _Unable(_FailingOnce):
    def start(self) -> None:
        raise Unavailable("no cluster")


def test_a_fleet_that_cannot_begin_leaves_no_directory(tmp_path: Path) -> None:
    directory = tmp_path / "temporary"
    fleet = Fleet(_Unable(), directory, is_temporary=True)

    with pytest.raises(Unavailable), fleet:
        pass

    assert not directory.exists()


def test_a_turn_that_fails_is_told_and_the_next_one_follows(tmp_path: Path) -> None:
    engine, lines = _FailingOnce(), list[str]()

    with Fleet(engine, tmp_path, tell=lines.append):
        eventually(lambda: engine.looks > 1, 30, "another look")

    assert "error: OSError: [Errno 28] No space left on device" == lines[0]
