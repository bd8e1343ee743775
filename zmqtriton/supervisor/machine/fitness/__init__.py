"""The needs of a server on a machine: system calls, and limits that leave it room."""
