"""The storage layer: a key-value store with one growing revision, one contract, three drivers.

Every change of the whole system goes through one function, `commit`. The drivers are memory (the
reference), SQLite (embedded) and etcd (more than one machine).

Not here: the meaning of values. No kinds, no encodings, no versions of objects. Only `census` reads
raw values, from any source, to count them; it writes none.
"""
