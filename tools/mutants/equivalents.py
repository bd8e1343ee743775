"""Mutants that behave as the original does, with the reason: no test can notice them."""

from __future__ import annotations

#: By `Mutation.name`.
EQUIVALENTS: dict[str, str] = {}
