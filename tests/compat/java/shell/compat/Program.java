package compat;

import java.lang.reflect.Method;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** What a snippet extends: its words for talking to the test that started it. */
public abstract class Program {
    private static final Object STOP = new Object();
    private final BlockingQueue<Object> inbox = new LinkedBlockingQueue<>();
    private final Deque<Object> clients = new ArrayDeque<>();
    private volatile boolean stopped;
    Shell.Run run;

    protected abstract void main(String[] args) throws Exception;

    /** Hand one value to the test: a map, list, text, number or null. Callable from any thread. */
    protected void emit(Object row) {
        run.report("row", row);
    }

    /** Hand one object to the test, written as name, value, name, value. Unlike Map.of it takes nulls. */
    protected void emit(String name, Object value, Object... more) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put(name, value);
        for (int i = 0; i < more.length; i += 2) {
            row.put((String) more[i], more[i + 1]);
        }
        emit(row);
    }

    /** Next text sent by the test, or null once it asked to stop. */
    protected String receive() throws InterruptedException {
        if (stopped) {
            return null;
        }
        Object next = inbox.take();
        stopped = next == STOP;
        return stopped ? null : (String) next;
    }

    protected void awaitStop() throws InterruptedException {
        while (receive() != null) {
            continue;
        }
    }

    /** Have the client shut down when the snippet ends, however it ends. */
    protected <T> T use(T client) {
        clients.push(client);
        return client;
    }

    void deliver(String text) {
        inbox.add(text);
    }

    void stop() {
        inbox.add(STOP);
    }

    void shutdownClients() {
        for (Object client : clients) {
            try {
                Method shutdown = client.getClass().getMethod("shutdown");
                shutdown.invoke(client);
            } catch (ReflectiveOperationException e) {
                e.printStackTrace();
            }
        }
    }
}
