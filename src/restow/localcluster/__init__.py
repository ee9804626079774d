"""A cluster on one machine: starts, monitors, upgrades and stops its processes.

    supervisor -> managed processes -> `restow serve` × N, `restow controllers`, etcd

The state is stored in the data directory; other commands send requests to the supervisor through a
socket there. An upgrade consists of steps, one server each, and each step is checked beforehand.

Not here: the API server itself. The supervisor uses only the command line of its processes, their
line that begins with `ready`, and their API. Nothing is printed here; the commands print.
"""
