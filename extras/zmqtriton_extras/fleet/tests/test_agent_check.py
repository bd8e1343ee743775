"""The weight that HAProxy's agent checks are answered with."""

from __future__ import annotations

from zmqtriton_extras.fleet.agent_check import LOOK_EVERY_S, SMOOTHED_OVER_S, Weight


def test_a_server_without_work_is_free() -> None:
    weight = Weight()

    weight.look(0.0, 1.0)

    assert weight.percent == 100


def test_a_full_server_still_gets_something() -> None:
    weight = Weight()

    for second in range(100):
        weight.look(1.0, float(second))

    assert weight.percent == 1


def test_a_moment_changes_little_and_a_while_changes_all() -> None:
    weight = Weight()
    weight.look(0.0, 0.0)

    weight.look(1.0, LOOK_EVERY_S)
    after_a_moment = weight.percent
    weight.look(1.0, 10 * SMOOTHED_OVER_S)

    assert after_a_moment > 90
    assert weight.percent == 1
