"""The way from a frontend to the broker and the supervisor, and back."""
