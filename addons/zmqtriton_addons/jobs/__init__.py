"""Jobs: requests that are kept on disk, answered 202, and executed later.

What both ends share stands here: `messages.py`. `process/` keeps and executes jobs; `extension.py`
and `routes.py` take them from clients of HTTP.
"""
