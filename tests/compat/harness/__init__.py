"""Java's own programs as test partners: name server, broker, clients and admin tool of RocketMQ.

    build       what is fetched or compiled once per checkout
    processes   a child process that cannot outlive its parent, with its log
    java        the releases, and how a JVM is started
    servers     JavaNameServer, JavaBroker, CometNameServer: start, stop, kill, restart
    shell       one resident JVM that compiles and runs Java snippets
    programs    the snippets nearly every test needs: send, consume
    directory   how a store directory was left, where its queues end, what the Java client reads and finds in it
    foreign     the Go and the Node client
    admin       mqadmin, in a resident JVM
    remoting    plain requests, written apart from cometmq.wire so that it can judge it

Nothing here imports pytest: benchmarks start the same processes. The fixtures are in tests/compat/conftest.py.
"""
