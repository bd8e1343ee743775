"""The backend `repeat`: a response for each element of the input."""
