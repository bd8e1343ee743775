"""The state of the servers of a fleet, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from zmqtriton_addons.fleet.servers.node_service import NodeService, Reply

#: The cells of a row, by their titles.
Columns = Mapping[str, Callable[[Mapping[str, Any]], str]]

SERVERS: Columns = {
    "Server": lambda row: row["server"],
    "State": lambda row: row["state"],
    "Ready": lambda row: _count_ready(row["models"]) if row["models"] else "-",
    "Queued": lambda row: str(row.get("queued", "-")),
    "Executing": lambda row: str(row.get("executing", "-")),
    "Used": lambda row: f"{row['utilization']:.0%}" if "utilization" in row else "-",
    "Problem": lambda row: row["problem"],
}
MODELS: Columns = {
    "Server": lambda row: row["server"],
    "Model": lambda row: row["name"],
    "Version": lambda row: row.get("version", "-"),
    "State": lambda row: row.get("state", "-"),
    "Reason": lambda row: row.get("reason", ""),
}
_UNREACHABLE = "unreachable"


def look(service: NodeService) -> dict[str, Any]:
    """Ask a server for all that is shown of it."""
    answer = {"is_ready": service.is_ready(), "models": service.index()}
    return {**answer, "load": service.load_figures()}


def describe(reply: Reply[dict[str, Any]]) -> dict[str, Any]:
    node, answer = reply.node, reply.answer
    server = {"server": node.http, "announced": node.state}
    if answer is None:
        state = node.state if node.is_gone else _UNREACHABLE
        return {**server, "state": state, "models": [], "problem": reply.problem}
    if answer["is_ready"]:
        state = "ready"
    else:
        # what it has announced says more than that it is not ready, if it says so, too
        state = node.state if node.state not in ("", "ready") and not node.is_gone else "unready"
    figures = {"queued": 0, "executing": 0, "utilization": 0.0}
    figures = {name: answer["load"].get(name, figure) for name, figure in figures.items()}
    return {**server, "state": state, "models": answer["models"], **figures, "problem": ""}


def models_of(seen: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    return ({"server": each["server"], **model} for each in seen for model in each["models"])


def _count_ready(models: Sequence[Mapping[str, Any]]) -> str:
    meant = [model for model in models if model.get("reason") != "unloaded" and "state" in model]
    return f"{sum(m['state'] == 'READY' for m in meant)} of {len(meant)}"
