"""Cost and latency of coordination."""
