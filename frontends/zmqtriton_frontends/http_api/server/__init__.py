"""The server side: gunicorn's arbiter, our processes, connections, TLS, inferences."""
