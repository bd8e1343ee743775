"""The processes that clients talk to: HTTP, gRPC and metrics.

They turn clients' requests into checked ones for the broker and replies back into bytes, and keep
nothing that another process would need.
"""
