"""Replication of the log: a master sends its bytes, replicas append them as they are.

    links, waiters, quorum, master   the master's side as values: who reported what, who waits, how many must have it
    replica                          the replica's side as values: what to append, what to report
    frames                           the bytes between them
    listener, follower               the sockets around both

All but the last two touch no socket, no file and no clock: bytes and times go in, bytes come out. So they run under a
simulated network as well. The protocol is RocketMQ's own; docs/replication.md tells what is stricter here.
"""
