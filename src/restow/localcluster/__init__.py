"""A cluster on one machine: processes that are started, watched, rolled and stopped as one tree.

    supervisor -> managed processes -> `restow serve` × N, `restow controllers`, etcd

What runs where is remembered in the data directory; other commands talk to the supervisor through a
socket there. An upgrade is made of steps, one server each, and each is checked before it is taken.

Not here: what a server does. The supervisor knows its processes by their command line, the line
that begins with `ready`, and their API. Nothing is printed here; commands say what happens.
"""
