"""`python -m zmqtriton_frontends.http_api --lifeline FD --socket FD`, started by the supervisor.

Waits until the server opens, then becomes gunicorn's arbiter on the given bound sockets.
"""

from __future__ import annotations

import logging
import os

from zmqtriton_floor import logs, prctl
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_floor.settings.frontends import FrontendSettings
from zmqtriton_floor.wire import Bootstrap, Listen, Shutdown, Sync, Synced
from zmqtriton_frontends.http_api.server.server import ListenerOwner
from zmqtriton_frontends.http_api.server.service import MAIN
from zmqtriton_frontends.process.hosts import AllowedHosts
from zmqtriton_frontends.serving.process import begin

_log = logging.getLogger(__name__)

#: Environment variables that are kept from gunicorn: with them it would take over another's
#: sockets, or tell systemd that all processes are ready.
_NOT_FOR_GUNICORN = (
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "GUNICORN_PID",
    "GUNICORN_FD",
    "GUNICORN_CMD_ARGS",
    "WEB_CONCURRENCY",
)


def main() -> int:
    lifeline, sockets = begin("zmqtriton-http", [MAIN])
    for name in _NOT_FOR_GUNICORN:
        os.environ.pop(name, None)
    bootstrap = await_open(lifeline)
    if bootstrap is None:
        return 0
    settings = FrontendSettings.decode(bootstrap.settings)
    logs.configure(settings.log)
    if not AllowedHosts(settings.http.bound_address, settings.http.allowed_hosts).is_checked:
        _log.info("HTTP answers requests for any name of a host; --http-allowed-host limits that")
    ListenerOwner(settings, lifeline, bootstrap.directory, sockets).run()
    return 0


def await_open(lifeline: Lifeline) -> Bootstrap | None:
    """Block until the server opens; None if it stops, or its supervisor dies, before."""
    bootstrap: Bootstrap | None = None
    while not lifeline.ended:
        lifeline.wait()
        for message, _ in lifeline.receive():
            if type(message) is Bootstrap:
                bootstrap = message
            elif type(message) is Sync:
                lifeline.send(Synced(message.number))
            elif type(message) is Listen:
                return bootstrap
            elif type(message) is Shutdown:
                return None
    return None


if __name__ == "__main__":
    prctl.run_program(main)
