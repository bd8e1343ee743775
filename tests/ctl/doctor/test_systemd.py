"""Reading what systemd says of the server's unit."""

from __future__ import annotations

import pytest

from zmqtriton_addons.tools.doctor.reading.systemd import failure_in

#: As systemd 252 prints them.
PRINTED = {
    "Result=success\nNRestarts=0\nActiveState=active\n": "",
    "Result=success\nNRestarts=0\nActiveState=activating\n": "",
    "Result=exit-code\nNRestarts=1\nActiveState=activating\n": "exit-code",
    "Result=watchdog\nNRestarts=5\nActiveState=failed\n": "watchdog",
    "Result=success\nNRestarts=2\nActiveState=activating\n": "a restart",
    "": "",
}


@pytest.mark.parametrize("printed", PRINTED)
def test_a_unit_that_does_not_stay_up_is_found(printed: str) -> None:
    assert PRINTED[printed] == failure_in(printed)
