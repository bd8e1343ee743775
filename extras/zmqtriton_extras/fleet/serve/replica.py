"""A replica of Ray Serve: owns one server, and ends with it.

Serve asks for its health and load, changes its models by `reconfigure`, and ends it by `__del__`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ray import serve

from zmqtriton.sdk.process import NoServerError
from zmqtriton.sdk.wire import Unavailable, ZmqTritonError
from zmqtriton_extras.fleet.serve import groups, register
from zmqtriton_extras.fleet.serve.groups import Models, change_of
from zmqtriton_extras.fleet.serve.ingress import Entrance, Relay
from zmqtriton_extras.fleet.serve.owned_server import OwnedServer
from zmqtriton_standard.ctl.http_service import HttpService

_log = logging.getLogger("ray.serve")

_ANSWER_WITHIN_S = 4.0


class ServerReplica(Relay, Entrance):
    def __init__(
        self,
        options: Sequence[str],
        headers: Mapping[str, str],
        drain_within_s: float,
        stop_within_s: float,
    ) -> None:
        """Start the server. Raises Unavailable if it does not start."""
        replica = serve.get_replica_context().replica_id
        self._name = replica.to_full_id_str()
        self._headers = headers
        self._stop_limits = drain_within_s, stop_within_s
        #: Models that the server should serve; a failed one is tried again when its mark changes.
        self._models: Models = {}
        self._written: dict[str, Any] = {}
        self._registering: asyncio.Future[None] | None = None
        self._server = OwnedServer(f"{replica.deployment_id.name}-{replica.unique_id}", options)
        self._server.wait_until_open()
        self._server.on_end(self._die)
        node = self._server.node
        if node is None:
            raise Unavailable("a server of a fleet needs HTTP")
        self.node = node

    def _die(self, reason: str) -> None:
        """End with the server, so that Serve starts another replica."""
        _log.error("%s, and its replica ends with it", reason)
        os._exit(1)

    async def reconfigure(self, user_config: Mapping[str, Any]) -> None:
        """Load and unload models according to the change.

        If a model fails, the replica continues with its other models and the old version of that
        model; the server's log and index say why.
        """
        after = user_config["models"]
        if after is None:
            return  # all of them, as the server was started
        change = change_of(self._models, after)
        self._models = dict(after)
        for names, action in ((change.load, OwnedServer.load), (change.unload, OwnedServer.unload)):
            for name in names:
                try:
                    await asyncio.to_thread(action, self._server, name)
                except (ZmqTritonError, NoServerError) as error:
                    _log.error("%s of '%s' has failed: %s", action.__name__, name, error)

    async def check_health(self) -> None:
        """Raise Unavailable if the server does not answer; Serve then replaces this replica."""
        await asyncio.to_thread(self._server.check)
        if self._registering is None or self._registering.done():
            # the head may be away, for which a server that answers is not to blame
            self._registering = asyncio.ensure_future(self._register())

    async def _register(self) -> None:
        announcement = self._server.announcement()
        shown = {**announcement, "at_s": 0}
        if shown == self._written:
            return
        try:
            await asyncio.to_thread(register.write, self._name, announcement)
            self._written = shown
        except Exception as error:  # noqa: BLE001 - it is tried again; the server serves
            _log.warning("the server cannot be registered: %s", error)

    async def record_autoscaling_stats(self) -> dict[str, float]:
        service = HttpService(self.node.url, self._headers, _ANSWER_WITHIN_S)
        figures = await asyncio.to_thread(lambda: service.request("/v2/load").json())
        return {groups.DEMAND: groups.demand_of(figures)}

    def __del__(self) -> None:
        """Drain the server and stop it: Serve calls this when it ends the replica in order."""
        server = getattr(self, "_server", None)
        if server is None:
            return
        try:
            register.remove(self._name)
        except Exception as error:  # noqa: BLE001 - nobody reads it any more
            _log.warning("the server is still registered: %s", error)
        server.stop(*self._stop_limits)
