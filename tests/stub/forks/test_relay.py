"""A fork's line to its instance, with both ends in the process of the test."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.stub.broker.test_bls_client import World
from tests.stub.fakes import FakeLink, body
from tests.support.waiting import eventually
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.settings.codec import encode
from zmqtriton_floor.settings.stub import StubSettings
from zmqtriton_stub.api import pb_utils
from zmqtriton_stub.forks.fork_client import ForkClient, ForkedBlsClient
from zmqtriton_stub.forks.relay import Relay

_BOOTSTRAP = wire.Bootstrap(7, b"0123456789abcdef", "stub", "", 1, encode(StubSettings()))
_ASKED = wire.Request(0, 0, "m", -1, 0, 0, 0, 0, 1, 0, 0)


class Fork:
    def __init__(self) -> None:
        self.link = FakeLink()
        self.instance = self.link.instance
        self.instance.find_request = self.link.pending.get
        self._relay = Relay(self.instance)
        self._relay.open_inlet()
        [(_, end)] = self._relay._opening.values()
        self._inlet = end.dup()  # a fork inherits it
        self._relay.serve()
        self.line = ForkClient(self._inlet)

    def close(self) -> None:
        self._inlet.close()
        if self.line._dealer is not None:
            self.line._dealer.close()
        eventually(lambda: not self._relay._is_running, 30, "nothing is served any more")


def test_a_fork_answers_a_request_and_only_once() -> None:
    with closing(Fork()) as fork:
        fork.link.add_request(body(), own_id=5)

        fork.line.send((3, 5), pb_utils.InferenceResponse(), wire.FINAL)

        assert [(5, wire.FINAL)] == [(one.id, one.flags) for one in fork.link.outcomes()]
        with pytest.raises(pb_utils.TritonModelException, match="sender has been closed"):
            fork.line.send((3, 5), pb_utils.InferenceResponse(), wire.FINAL)


@pytest.mark.parametrize("does_end", [False, True])
def test_calls_that_a_fork_cancels_or_leaves_at_its_end_are_cancelled(
    tmp_path: Path, does_end: bool
) -> None:
    with closing(World(tmp_path)) as world, closing(Fork()) as fork:
        fork.instance.asker = world.asker
        memory: Any = world.memory
        with closing(ForkedBlsClient(_BOOTSTRAP, memory, fork.line)) as asker:
            question = asker.ask(_ASKED, wire.encode_body(wire.RequestBody("", {}, [], [])))
            [infer] = world.broker.hear_all(wire.Infer, 1)

            if does_end:
                asker.close()
            else:
                asker.cancel(question)

            [cancelled] = world.broker.hear_all(wire.Cancel, 1)
            assert [infer.requests[0].id] == cancelled.ids


def test_the_connection_of_its_parent_is_not_asked_for_anything(tmp_path: Path) -> None:
    with closing(World(tmp_path)) as world:
        world.asker.abandon()

        refusal = world.asker.wait(world.ask())[0]

        assert Unavailable.number == refusal.code
        assert "a process that the model has forked" in refusal.text
