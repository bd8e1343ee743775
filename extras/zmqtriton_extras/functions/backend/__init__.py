"""The backend `functions`: runs in the model's Python, without the server."""
