"""The HTTP side of a server: the listener, the chain of filters, the handlers, discovery.

Not here: how objects are stored. A handler speaks to `restow.resources` and uses no word of
storage. Filters do not call each other; their order is one list.
"""
