"""The use of models' quotas, as operators see it."""
