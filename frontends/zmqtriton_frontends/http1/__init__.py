"""HTTP/1.1 without sockets: how requests are read from bytes, and how responses are written.

RFC 9110 and 9112; knows nothing of models.
"""
