"""The server's side of HTTP/2, as much of it as gRPC needs: bytes in, bytes out, no sockets.

Knows nothing of gRPC and of this server. Start in `connection.py`.
"""
