"""What tests need, ours and those of others: the storage suite, scenarios, the simulator.

It may import anything.

Not here: code that a server needs. No other package may import this one.
"""
