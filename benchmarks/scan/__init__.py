"""Speed of a scan of the raw store, and its effect on other requests."""
