"""Server-side apply: who owns which field of an object, and what an applied configuration does.

`sets` is the algebra of field sets, in the very form that `managedFields` has on the wire. `schema`
and `structural_schema` say how a built-in or a custom kind is put together, `values` what objects
and field sets do to one another. On top of them stand the managers of an object. Everything is
pure: values in, values out, and nothing that is given is ever changed.

All walks are recursive. They end because the decoder refuses what is nested deeper than
`codec.DEPTH_MAX`, and a field set is never deeper than the object it speaks of.

Not here: reading requests, conversion between versions, storing, and time.
"""
