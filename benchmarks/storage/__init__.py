"""Speed of the storage drivers, compared to minimal code that does the same work."""
