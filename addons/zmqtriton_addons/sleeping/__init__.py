"""Models that sleep: they give their memory back and keep their process, until a request comes."""
