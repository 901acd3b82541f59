"""Sockets: the thin shell around `wire`.

    server      accepts connections and serves a table of handlers
    client      keeps one connection per address and calls through it
    connection  one socket, with its `intake` (bytes to commands) and `output` (commands to bytes)
    serving     one request: from its code to its answer; `waiting` remembers those not answered at once
    endpoint    what all connections of one server or client share: budgets, the sweep, events
    calls       requests under way to a peer: permits, deadlines, matching answers
    dispatch    request code -> handler and family; hooks
    opening     the first bytes of an accepted connection: PROXY header, TLS or plain
    tls         contexts, their files and a TLS session without I/O
    limits      every bound that a peer can run into, with its name and unit
"""
