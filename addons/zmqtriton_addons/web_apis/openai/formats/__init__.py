"""The form that a client asks of a text: JSON, or JSON of a schema."""
