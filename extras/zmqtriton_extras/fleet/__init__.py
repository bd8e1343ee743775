"""Servers on several machines: announced, found and asked, behind a proxy, on Ray Serve."""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Command, Process

ADDON = AddOn(
    "fleet",
    process=Process(".announcing", name="announcer", title="Announcer", is_on_demand=True),
    commands={
        "fleet": Command(
            ".serve.command:run_fleet",
            "fleet up file                   run servers on a cluster of Ray",
        ),
    },
    ctl={"fleet": ".ctl:fleet", "proxy": ".proxies.command:proxy"},
    agent_check=".agent_check:AgentCheck",
    after=("bench",),
)
