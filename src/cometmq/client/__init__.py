"""The client: producers, consumers and what they share.

    client         the facade: one object per process, from which producers and consumers come
    instance       what all of them share: name servers, routes, connections, heartbeats, commands from brokers
    options        every default, in seconds and bytes
    messages       Message, SendReceipt; `codecs` turn values into bodies and back
    nameservers    which name server to ask; `routes` what its answers mean; `namespaces` how names are wrapped
    producer       send and its kin: `outgoing` makes a message's bytes, `selectors` and `faults` choose its queue,
                   `window` bounds what is under way, `batching` packs many, `transactions` and `requests` build on it
    acl            signing; `trace` reports what was sent and consumed

Nothing here starts a thread, except to run a user's plain function.
"""
