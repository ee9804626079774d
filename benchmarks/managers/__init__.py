"""What it costs to know who manages which field."""
