"""The transports of RPCs: our own HTTP/2, and grpc.aio as the second one."""
