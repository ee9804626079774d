"""Rate of migrations, and their effect on other requests."""
