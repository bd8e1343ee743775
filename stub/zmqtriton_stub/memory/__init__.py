"""Large tensors: this process's arena, what it maps of others, and GPU memory."""
