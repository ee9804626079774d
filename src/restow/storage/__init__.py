"""Keys, values and one growing revision: one contract, and three drivers that keep it.

Every change of the whole system goes through one function, `commit`. The drivers are memory (the
reference), SQLite (embedded) and etcd (more than one machine).

Not here: what a value means. No kinds, no encodings, no versions of objects. Only `census` looks at
raw values, of any origin, to count them; it writes none.
"""
