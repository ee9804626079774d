"""The pages for a person: who stores what in which version, and how far a migration is.

Not here: any source of truth. The dashboard is a client of the API, and it has no build step.
"""
