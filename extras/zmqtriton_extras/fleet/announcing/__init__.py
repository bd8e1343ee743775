"""The process that announces the server: to files on this machine, and to URLs elsewhere."""
