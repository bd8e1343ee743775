"""Child processes: spawned or forked, watched, sent messages, and reaped."""
