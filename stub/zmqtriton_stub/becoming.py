"""Becomes the program that its arguments name; run as a file, by Python alone."""

import os
import sys

if __name__ == "__main__":
    try:
        os.execv(sys.argv[1], sys.argv[1:])
    except OSError as error:
        sys.stderr.write(f"it cannot be started: {error}: '{sys.argv[1]}'\n")
        sys.exit(127)
