"""The gRPC process: `python -m zmqtriton_frontends.grpc_api --lifeline FD [--socket FD …]`.

Started by the supervisor, which sends it over the lifeline who it is, and the orders to listen and
to stop. Ends with status 0 after the order to stop; if the lifeline ends, the process ends at once.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping

from zmqtriton_floor import prctl
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.grpc_api.transport.server import NativeServer
from zmqtriton_frontends.serving import process


def make(gateway: Gateway, bound: Mapping[str, socket.socket]) -> process.Service:
    if gateway.settings.grpc.transport == "native":
        return NativeServer(gateway, list(bound.values()))
    # only now: grpc takes 20 MB and has threads of its own
    from zmqtriton_frontends.grpc_api.transport.grpcio_server import GrpcioServer

    return GrpcioServer(gateway)


def main() -> int:
    # the library's own messages are no verbose lines of ours
    logging.getLogger("grpc").setLevel(logging.INFO)
    return process.run("zmqtriton-grpc", ["socket"], make)


if __name__ == "__main__":
    prctl.run_program(main)
