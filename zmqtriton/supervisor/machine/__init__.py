"""Everything that touches the operating system: processes, sockets, files, memory, GPUs."""
