"""The memory of models, on the machine and on GPUs, for features that have budgets of it."""
