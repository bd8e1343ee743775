"""Every table of cases, by its name; each names the repository that it is played against."""

from __future__ import annotations

from types import ModuleType

from tests.conformance.tables import answers, decoupled, requests, senders, tensors

TABLES: dict[str, ModuleType] = {
    table.__name__.rpartition(".")[2]: table
    for table in (tensors, requests, answers, senders, decoupled)
}
