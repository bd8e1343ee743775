"""The backend `identity`: outputs that are the inputs."""
