"""Replication within a set that elects its master: the log with epochs, RocketMQ's auto-switch protocol.

    epochs      which master wrote which part of the log; where two logs part
    frames      the bytes between master and replica
    leader      the master's side as a value: what each member has on its disk, what is committed, who waits
    replica     a replica's side as a value: handshake, agreement, frames, reports
    promises    the two small files that outlive a process
    cut         takes back what the master never had, durably, and keeps it aside
    listener, follower   the sockets around them

Who leads is decided elsewhere (cometmq.failover); here it is given. No module but the last three touches a file or a
socket, so that a simulation runs the others under power cuts and a broken network.
"""
