"""OpenAI's files and batches: each line of a file is a request, and becomes a job.

`extension.py` and `routes.py` take them from clients of HTTP; `process/` is a part of the process
of jobs, which stores files and batches, and executes their lines as jobs.
"""
