"""Test support for storage drivers and kinds of your own: storage suite, in-process server.

Install it with the extra `restow[testing]`. No other package of restow imports this one.

Not here: simulator, fault injection and process helpers of restow's own tests (`tests/support`).
"""
