"""Structural schemas: what the schema of a custom resource is, and what it does to objects.

A schema is read (`read_schema`), checked (`definition_problems`) and compiled once
(`CompiledSchema`); then each object is coerced and validated in some microseconds, and only one
that is wrong takes longer. Everything is pure: values in, values out.

Not here: definitions of custom resources around the schema, storing, serving, and metadata.
"""
