"""A small model of registration, fence, garbage collection and migration, searched exhaustively.

The model verifies the protocol, not the code: every order of events in a world of a few process
incarnations and one or two objects. No file here imports restow.

    state.py        the state of the store and the processes
    protocol.py     the rules that can be switched, and the world they are checked in
    actions.py      the possible actions
    invariants.py   the invariants of every state
    remote.py       servers with their own store, which report to another one
    search.py       breadth-first search, independent of the model
"""
