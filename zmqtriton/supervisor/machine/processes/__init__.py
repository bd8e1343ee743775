"""Child processes: how they are spawned or forked, watched, told things and reaped."""
