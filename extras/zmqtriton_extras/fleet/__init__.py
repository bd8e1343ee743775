"""Servers on several machines: announced, found and asked, behind a proxy, on Ray Serve."""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Command, Option, Port, Process

ADDON = AddOn(
    "fleet",
    needs=(
        "ctl",
        "tracing",
    ),
    title="Announcements",
    after=("bench",),
    options=(
        Option(
            "announce",
            ".announcing.places:place",
            (),
            "Where to announce this server: a file that is replaced, or a URL that gets a POST, on "
            "each change and as a heartbeat. May be repeated.",
            "FILE|URL",
            repeats=True,
            is_secret=True,
        ),
        Option(
            "announce-host",
            str,
            "",
            "Host in announced addresses. Default is the address that the server listens on, and "
            "this machine's if these are all.",
            requires="announce",
        ),
        Option(
            "announce-interval-secs",
            ".announcing.places:interval",
            5,
            "Seconds between announcements if nothing changes.",
            "integer",
        ),
        Option(
            "announce-token-file",
            str,
            "",
            "File with a bearer token that is sent with announcements to URLs.",
            requires="announce",
            is_secret=True,
        ),
        Option(
            "agent-check-port",
            "zmqtriton.options.values:port",
            None,
            "Port on which HAProxy's agent checks learn how much of the server is free, at the "
            "address of metrics. There is no default.",
            "integer",
            group="Metrics",
        ),
    ),
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
