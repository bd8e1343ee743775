"""The metrics frontend: its own process, which neither TLS nor --allow-http of HTTP touches.

`exposition.py` is the text, `server.py` the smallest HTTP that Prometheus needs.
"""
