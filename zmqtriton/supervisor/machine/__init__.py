"""The supervisor's access to the operating system: processes, sockets, files, memory, GPUs."""
