"""Options of loads that requests make, where they contradict each other."""

from __future__ import annotations

import pytest

from zmqtriton.options import OptionError, parse

_EXPLICIT = ("--model-repository=/m", "--model-control-mode=explicit")


def test_they_are_read() -> None:
    limits = ("--unload-idle-after=1.5", "--model-memory-budget=1048576")
    options = parse([*_EXPLICIT, "--load-on-demand", "--load-on-demand-timeout=5", *limits])

    assert (True, 5.0) == (options.load_on_demand, options.load_on_demand_timeout)
    assert (1.5, 1 << 20) == (options.unload_idle_after, options.model_memory_budget)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--model-repository=/m", "--load-on-demand"], "'--model-control-mode=explicit' as well"),
        (["--model-repository=/m", "--one-by-one"], "requires setting '--take-over' as well"),
        ([*_EXPLICIT, "--unload-idle-after=5"], "requires setting '--load-on-demand' as well"),
        ([*_EXPLICIT, "--model-memory-budget=5"], "requires setting '--load-on-demand' as well"),
        (
            [*_EXPLICIT, "--load-on-demand", "--unload-idle-after=-1"],
            "--unload-idle-after must not be negative",
        ),
        (
            [*_EXPLICIT, "--load-on-demand", "--load-on-demand-timeout=-1"],
            "--load-on-demand-timeout must not be negative",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        parse(arguments)
