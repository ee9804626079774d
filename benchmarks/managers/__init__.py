"""Cost of tracking field managers."""
