"""Java's own programs as test partners: name server, broker, clients and admin tool of RocketMQ.

    processes   a child process that cannot outlive its parent, with its log
    java        the releases (jars by Maven, once per checkout) and how a JVM is started
    servers     JavaNameServer, JavaBroker, CometNameServer: start, stop, kill, restart
    shell       one resident JVM that compiles and runs Java snippets
    admin       mqadmin, in a resident JVM
    remoting    one request, one answer, written apart from cometmq.wire so that it can judge it

Nothing here imports pytest: benchmarks start the same processes. The fixtures are in tests/compat/conftest.py.
"""
