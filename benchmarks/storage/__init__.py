"""How fast the storage drivers are, beside the least code that does the same work."""
