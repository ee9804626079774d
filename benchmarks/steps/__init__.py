"""The longest step of the event loop while a server processes requests at its limits."""
