"""What it costs to know who asks, whether they may, and to write it down."""
