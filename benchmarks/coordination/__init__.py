"""What coordination costs, and how fast it is."""
