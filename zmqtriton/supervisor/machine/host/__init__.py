"""The machine under the server: its lacks, cores, descriptors and GPUs; the limits of models."""
