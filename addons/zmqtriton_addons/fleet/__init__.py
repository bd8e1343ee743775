"""Servers on several machines: announced, found, asked, and kept on nodes behind a proxy.

Decisions are made by `plan`, `placement` and `replicas`, which do no I/O. Engines start nodes and
know nothing of models; everything else is done over HTTP, as docs/fleet.md has it.
"""
