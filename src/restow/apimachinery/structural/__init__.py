"""Structural schemas of custom resources: validation of schemas, and of objects against them.

A schema is parsed (`read_schema`), validated (`definition_problems`) and compiled once
(`CompiledSchema`). Coercing and validating a valid object then takes some microseconds; only
invalid objects take longer. Everything is pure: values in, values out.

Not here: the CRD around the schema, storing, serving, and object metadata.
"""
