"""Server-side apply: ownership of fields (`managedFields`), and merging of applied configurations.

`sets` is the algebra of field sets, in the form that `managedFields` has on the wire. `schema` and
`structural_schema` describe how built-in and custom kinds merge, `values` compares objects and
extracts field sets. `entries`, `field_managers` and `server_side_apply` build on them. Everything
is pure: arguments are never modified.

All walks are recursive. The depth is bounded: the decoder rejects anything nested deeper than
`codec.DEPTH_MAX`, and a field set is never deeper than its object.

Not here: reading requests, conversion between versions, storing, and time.
"""
