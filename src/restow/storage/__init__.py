"""The storage layer: a key-value store with one growing revision, one contract, three drivers.

Every change of the whole system goes through one function, `commit`. The drivers are memory (the
reference), SQLite (embedded) and etcd (more than one machine).

Not here: what a value means. No kinds, no encodings, no versions of objects. Only `census` reads
raw values, from any source, to count them; it writes none.
"""
