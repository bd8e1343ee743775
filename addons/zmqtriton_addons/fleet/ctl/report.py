"""The state of the servers of a fleet, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zmqtriton_addons.fleet.servers.node_service import NodeService, Reply

HEADER = ("Server", "State", "Ready", "Queued", "Executing", "Used", "Problem")
MODEL_HEADER = ("Server", "Model", "Version", "State", "Reason")
_UNREACHABLE = "unreachable"


def look(service: NodeService) -> dict[str, Any]:
    """Ask a server for all that is shown of it."""
    answer = {"is_ready": service.is_ready(), "models": service.index()}
    return {**answer, "load": service.load_figures()}


def describe(reply: Reply[dict[str, Any]]) -> dict[str, Any]:
    node, answer = reply.node, reply.answer
    server = {"server": node.http, "announced": node.state}
    if answer is None:
        return {**server, "state": node.state if node.is_gone else _UNREACHABLE, "models": []} | {
            "problem": reply.problem
        }
    if answer["is_ready"]:
        state = "ready"
    else:
        # what it has announced says more than that it is not ready, if it says so, too
        state = node.state if node.state not in ("", "ready") and not node.is_gone else "unready"
    figures = answer["load"]
    return {
        **server,
        "state": state,
        "models": answer["models"],
        "queued": figures.get("queued", 0),
        "executing": figures.get("executing", 0),
        "utilization": figures.get("utilization", 0.0),
        "problem": "",
    }


def rows(seen: Sequence[dict[str, Any]]) -> list[Sequence[str]]:
    return [
        (
            each["server"],
            each["state"],
            _count_ready(each["models"]) if each["models"] else "-",
            str(each.get("queued", "-")),
            str(each.get("executing", "-")),
            f"{each['utilization']:.0%}" if "utilization" in each else "-",
            each["problem"],
        )
        for each in seen
    ]


def model_rows(seen: Sequence[dict[str, Any]]) -> list[Sequence[str]]:
    return [
        (
            each["server"],
            model["name"],
            model.get("version", "-"),
            model.get("state", "-"),
            model.get("reason", ""),
        )
        for each in seen
        for model in each["models"]
    ]


def _count_ready(models: Sequence[dict[str, Any]]) -> str:
    meant = [model for model in models if model.get("reason") != "unloaded" and "state" in model]
    return f"{sum(m['state'] == 'READY' for m in meant)} of {len(meant)}"
