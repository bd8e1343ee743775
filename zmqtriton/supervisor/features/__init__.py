"""Features of the supervisor, one room each. The core knows none of them."""
