"""How RPCs come and go: our own HTTP/2 transport, and grpc.aio as the second one."""
