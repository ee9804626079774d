"""The `restow` command: one module per command, and one table that lists them.

A command reads its arguments, calls the package that does the work, and prints.

Not here: the work itself. Nothing is imported before its command is called, so that `--help` is
quick.
"""
