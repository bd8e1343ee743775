"""Features of the supervisor, a package for each. The core knows none of them."""
