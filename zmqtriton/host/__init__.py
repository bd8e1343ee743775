"""The machine: its lacks, cores, descriptors and GPUs, and memory of a fixed size."""
