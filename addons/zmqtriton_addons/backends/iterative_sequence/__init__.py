"""The backend `iterative_sequence`: responses of a request that is executed again and again."""
