"""The client of one connection, of either protocol: its memory, cost, and progress.

The connection owns the object. Calls, exchanges and shares refer to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zmqtriton_frontends.inference.open_sequences import OpenSequences
from zmqtriton_frontends.process.ledger import ClientAccount, Ledger
from zmqtriton_frontends.process.turns import ROUND_S, Cost, Turns


class ConnectedClient(ClientAccount):
    __slots__ = ("cost", "sequences", "turns")

    def __init__(
        self,
        ledger: Ledger,
        turns: Turns,
        info: Callable[[str], Any],
        moved: Callable[[], int] | None = None,
        owes: Callable[[], bool] | None = None,
        end: Callable[[], None] | None = None,
        *,
        sequences_ended: Callable[[], None] = lambda: None,
    ) -> None:
        """Set up; `info` is the transport's; the connection has the other functions."""
        peer = info("peername")
        super().__init__(ledger, peer[0] if isinstance(peer, tuple) else "", moved, owes, end)
        self.turns = turns
        #: Cost of the recent work for the client.
        self.cost = Cost(self.place, turns.clock())
        #: Sequences that the client has begun; its next connection may know nothing of them.
        self.sequences = OpenSequences(sequences_ended)

    def take_turn(self, work: Callable[[], None]) -> None:
        """Do the work now, or after other clients' work if there is much."""
        turns, cost = self.turns, self.cost
        begun = turns.clock()
        if turns.is_crowded and not turns.end_of_turn(cost, begun):
            turns.wait(cost, lambda _until: work())
            return
        try:
            work()
        finally:
            turns.spend(cost, begun)

    async def wait_for_turn(self, begun: float) -> None:
        """Wait for the client's next turn; its last work began at `begun`."""
        turns = self.turns
        turns.spend_task(self.cost, begun, min(turns.clock() - begun, ROUND_S))
        await turns.turn_of_task(self.cost)

    def work(self, step: Callable[[], bool]) -> None:
        """Execute steps in this client's turns, until one returns False."""

        def go_on(until: float) -> bool:
            while step():
                if self.turns.clock() >= until:
                    return True
            return False

        self.turns.wait(self.cost, go_on)
