"""Large tensors: this process's arena, mapped segments of other processes, and GPU memory."""
