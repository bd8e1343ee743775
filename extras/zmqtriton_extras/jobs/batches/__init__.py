"""OpenAI's files and batches: each line of a file is a request, and becomes a job.

`extension.py` and `routes.py` take them from clients of HTTP; `process/` is a room in the process
of jobs, which keeps files and batches beside its jobs and has the lines executed as such.
"""
