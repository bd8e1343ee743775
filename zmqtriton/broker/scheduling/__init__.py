"""Which request is executed next, by which instance."""
