"""The gRPC frontend: KServe v2 and Triton's extensions, and the standard health service.

`handlers.py` has the table of RPCs, with bytes in and bytes out; `transport/` carries them.
"""
