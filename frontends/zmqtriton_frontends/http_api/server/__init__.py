"""The server side: gunicorn's arbiter and worker, connections, TLS, the fast path of inference."""
