"""Operations on running models: stacks and restarts."""
