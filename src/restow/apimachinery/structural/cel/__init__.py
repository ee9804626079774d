"""CEL, the expression language of validation rules: parsing, type checking, cost and evaluation.

The language is CEL with the functions that Kubernetes adds. It is implemented here: rules are type
checked against schemas, their cost is limited before and during evaluation, and they read plain
JSON values, none of which the Python libraries support.

Not here: schemas themselves, clocks, and anything that reads files or calls a server. Time zones
come from Python's tables.
"""
