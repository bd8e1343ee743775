"""The server side: gunicorn's arbiter, our processes, connections, TLS, the fast path."""
