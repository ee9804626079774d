"""The protocol of registration, fence, collection and migration as a small model, searched whole.

What is proven here is the protocol, not the code: every order of events in a world of a few
process lives and one or two objects. No file here imports restow.

    state.py        what the store and the processes hold
    protocol.py     the rules that can be switched, and the world they are tried in
    actions.py      what can happen next
    invariants.py   what must hold, always
    remote.py       servers with a store of their own, which report to another one
    search.py       breadth-first search; knows nothing of all this
"""
