"""Settings of logs and traces, which clients change while the server runs."""
