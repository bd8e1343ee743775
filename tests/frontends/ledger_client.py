"""A client that moves as it is told, and can be ended."""

from __future__ import annotations

from zmqtriton_frontends.process.ledger import ClientAccount, Ledger, Share


class LedgerClient:
    """Holds answers."""

    def __init__(self, ledger: Ledger, place: str = "") -> None:
        self.moved = 0
        self.is_ended = False
        self.owes = True
        self.client = ClientAccount(ledger, place, lambda: self.moved, lambda: self.owes, self.end)
        self.share = Share(ledger.answers, self.client)

    def end(self) -> None:
        self.is_ended = True
        self.share.release()
        self.client.leave()
