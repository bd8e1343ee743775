"""The common ground of all processes: the wire, lifelines, tensors, checks, errors, logs.

Runs inside the server's interpreter and inside each model's own (CPython 3.8 or newer), so it
imports nothing but the standard library, pyzmq, msgpack and numpy.
"""

__version__ = "0.1.0"

#: The release of Triton whose protocol is spoken, for clients that compare it with releases.
TRITON_VERSION = "2.73.0"
