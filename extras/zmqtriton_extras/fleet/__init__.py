"""Servers on several machines: announced, found and called, behind a proxy, or on Ray Serve."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from zmqtriton.sdk import AddOn, Command, Option, Port, Process


class FleetOptions(NamedTuple):
    announce: Annotated[
        tuple[str, ...],
        Option(
            "Where to announce this server: a file that is replaced, or a URL that gets a POST, on "
            "each change and as a heartbeat. May be repeated.",
            read=".announcing.places:place",
            metavar="FILE|URL",
            is_secret=True,
        ),
    ] = ()
    announce_host: Annotated[
        str,
        Option(
            "Host in announced addresses. Default is the address that the server listens on, and "
            "this machine's if these are all.",
            requires="announce",
        ),
    ] = ""
    announce_interval_secs: Annotated[
        int,
        Option(
            "Seconds between announcements if nothing changes.",
            read=".announcing.places:interval",
            metavar="integer",
        ),
    ] = 5
    announce_token_file: Annotated[
        str,
        Option(
            "File with a bearer token that is sent with announcements to URLs.",
            requires="announce",
            is_secret=True,
        ),
    ] = ""
    agent_check_port: Annotated[
        int | None,
        Option(
            "Port on which HAProxy's agent checks learn how much of the server is free, at the "
            "address of metrics. There is no default.",
            read="zmqtriton.options.values:port",
            metavar="integer",
            group="Metrics",
        ),
    ] = None


ADDON = AddOn(
    "fleet",
    needs=(
        "ctl",
        "tracing",
    ),
    title="Announcements",
    after=("bench",),
    options=FleetOptions,
    process=Process(
        ".announcing", on="announce", name="announcer", title="Announcer", tells_others=True
    ),
    ports=(
        Port(
            "agent-check",
            "Agent Check",
            "agent-check-port",
            ".agent_check:AgentCheck",
            of="metrics",
            requests="agent checks",
        ),
    ),
    commands={
        "fleet": Command(
            ".serve.command:run_fleet",
            "fleet up file                   run servers on a cluster of Ray",
        ),
    },
    ctl={"fleet": ".ctl:fleet", "proxy": ".proxies.command:proxy"},
    public={"ray": ".ray"},
    offers={
        "ctl.group": {"Several servers": "fleet proxy"},
        "options.behind": "Server",
    },
)
