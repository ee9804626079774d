"""One server process put together: its configuration, its start, its stop.

This is the place where policies meet the packages that need them.

Not here: behaviour of its own. What is more than joining parts belongs to one of the parts.
"""
