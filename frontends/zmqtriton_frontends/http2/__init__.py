"""The server's side of HTTP/2, as far as gRPC needs it: bytes in, bytes out, no sockets.

Knows nothing of gRPC or of this server. Start in `connection.py`.
"""
