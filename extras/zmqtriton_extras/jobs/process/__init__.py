"""The process of jobs, a frontend that the supervisor starts with `--jobs`."""
