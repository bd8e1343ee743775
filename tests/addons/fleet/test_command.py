"""The command line of `zmqtriton fleet`."""

from __future__ import annotations

import pytest

from zmqtriton_addons.fleet.command import run_fleet

USUAL = ("up", "--engine=local", "--model-repository=/models")


@pytest.mark.parametrize("count", ["0", "-1", "two"])
def test_a_number_of_nodes_that_is_none_is_named(
    count: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run_fleet([*USUAL, f"--nodes={count}"])

    assert f"'{count}' is not a number above 0" in capsys.readouterr().err
