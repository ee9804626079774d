"""The expression language of rules in schemas: reading, types, cost, evaluation, rules.

The language is CEL with the functions that Kubernetes adds. It is written here rather than bound:
rules are checked against schemas, their cost is bounded before and while they run, and they read
JSON values as they are, none of which the libraries for Python do.

Not here: schemas themselves, clocks, and anything that reads files or talks to a server. Time
zones come from Python's tables.
"""
