"""The fork server as the core sees it: a process of its own, replaced when it dies."""

from __future__ import annotations

from tests.floor.reasons import because
from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton_floor import wire


def world() -> SupervisorHarness:
    return SupervisorHarness(make_blueprint("m"), has_fork_server=True).start()


def test_it_is_started_before_everything_else() -> None:
    served = world()

    assert "fork-server" == served.roles[min(served.roles)]
    assert served.latest_version_info("m").state == "READY"


def test_it_speaks_with_the_supervisor_alone() -> None:
    served = world()

    assert [] == [m for s, m in served.sent if s == served.serial("fork-server")]
    assert "fork-server" not in [
        expected.role for expected in served.messages_to("broker", wire.ExpectPeer)
    ]


def test_a_dead_one_is_replaced_and_shown_with_the_reason() -> None:
    served = world()

    served.kill_process(served.serial("fork-server")).tick()

    (row,) = [p for p in served.call("status").result["processes"] if p["role"] == "fork-server"]
    assert (1, "killed by SIGKILL") == (row["restarts"], row["last_reason"])
    assert served.serial("fork-server") == row["serial"]
    assert served.has_logged("the fork-server process")
    assert served.latest_version_info("m").ready_instances == 1


def test_one_that_dies_again_and_again_is_started_ever_more_seldom() -> None:
    served = world()

    for _ in range(10):
        served.kill_process(served.serial("fork-server"))
        while not served.living("fork-server"):
            served.advance(0.5)

    assert served.now_s > 20
    assert served.status is None


def test_one_that_is_no_help_ends_and_is_not_replaced() -> None:
    served = world()
    fork_server = served.serial("fork-server")

    served.receive(
        fork_server, wire.LoadFailed(because("sitecustomize.py has to run in each process"))
    )
    served.kill_process(fork_server, "exited with status 0").advance(60.0)

    assert [] == served.living("fork-server")
    assert served.has_logged("V every stub is spawned: sitecustomize.py")
    assert not served.has_logged("has died")


def test_it_ends_with_the_server_after_the_models() -> None:
    served = world()
    fork_server = served.serial("fork-server")

    served.core.stop_requested()
    served.run_until_idle()

    assert 0 == served.status
    assert fork_server not in served.alive
    assert not served.has_logged("has died")
