"""Shares of a ledger whose clients are nobody in particular."""

from __future__ import annotations

from zmqtriton_frontends.process.ledger import Book, ClientAccount, Ledger, Share


def share_of(book: Book) -> Share:
    """Return the share of a client of its own."""
    return Share(book, ClientAccount(Ledger(0)))
