"""Each hostile request is captured: a record of it is written as a document."""

from __future__ import annotations

from tests.faults.attacks.hostile import House

HOUSE = House(
    lambda server, chance: iter(()),
    lambda directory: (
        "--capture=*:100%",
        f"--capture-to={directory / 'captures'}",
        f"--capture-byte-size={256 << 20}",
    ),
)
