"""A client of the API: requests, watches, informers. It works with any Kubernetes server.

Not here: anything that knows how objects are stored. The client sees the system only through the
API, so storage, resources and coordination are out of reach.
"""
