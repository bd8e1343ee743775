"""The transport of gRPC that is grpc.aio, in place of our own: --grpc-transport=grpcio."""
