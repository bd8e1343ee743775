"""gRPC by Google's library, in place of our own HTTP/2."""

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "grpcio",
    offers={
        "grpc.transport": {"grpcio": ".server:Server"},
    },
)
