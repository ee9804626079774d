"""For people who write their own storage driver or kinds: the storage suite, an in-process server.

Install it with the extra `restow[testing]`. No other package of restow imports this one.

Not here: simulator, fault injection and process helpers of restow's own tests (`tests/support`).
"""
