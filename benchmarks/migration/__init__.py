"""How fast stored objects are rewritten, and what others feel of it."""
