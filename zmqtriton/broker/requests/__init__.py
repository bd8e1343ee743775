"""Requests while the broker has them: limits, answers, deadlocks, recovery."""
