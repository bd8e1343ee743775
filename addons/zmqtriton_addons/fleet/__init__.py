"""Servers on several machines: announced, found and asked, behind a proxy, on Ray Serve."""
