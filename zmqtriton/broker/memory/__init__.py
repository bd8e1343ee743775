"""The blocks of shared memory that requests and responses refer to, and the response cache."""
