"""How fast the raw store is scanned, and what a scan costs other requests."""
