"""The number of instances that the server's descriptors allow."""

from __future__ import annotations

import pytest

from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton.supervisor.models.instance_limit import InstanceLimit
from zmqtriton_floor.errors import Unavailable


def test_all_generations_share_the_limit() -> None:
    limit = InstanceLimit()
    limit.most = 10
    limit.claim(1, 6)

    with pytest.raises(Unavailable, match=r"allows 10 instances; there are 6, .* needs 5 more"):
        limit.claim(2, 5)
    limit.claim(2, 4)

    limit.release(1)
    limit.claim(2, 10)


def test_a_load_that_does_not_fit_is_refused_and_nothing_else_ends() -> None:
    world = SupervisorHarness(
        make_blueprint("small"),
        make_blueprint("large", instances=20),
        control_mode="explicit",
        startup_models=("small",),
        most_instances=10,
    ).start()

    call = world.call("load", {"model": "large"})

    assert "allows 10 instances; there are 1, and the load needs 20 more" in call.error[1]
    assert world.latest_version_info("small").state == "READY"
