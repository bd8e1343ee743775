"""The processes that clients talk to: HTTP, gRPC and metrics.

They turn clients' bytes into checked requests for the broker, and its replies into bytes for
clients. They keep nothing that another process would need.
"""
