package compat;

import java.lang.reflect.Method;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/**
 * What a snippet extends: its words for talking to the test that started it. They are public because a snippet's
 * anonymous classes use them too, and those do not share a loader, and so no package, with this class.
 */
public abstract class Program {
    private static final Object STOP = new Object();
    private static final int CALL_TIMEOUT_MS = 20_000;
    private static final long LISTENER_TIMEOUT_MS = 10_000;
    private final BlockingQueue<Object> inbox = new LinkedBlockingQueue<>();
    private final Deque<Object> clients = new ArrayDeque<>();
    private volatile boolean stopped;
    Shell.Run run;

    protected abstract void main(String[] args) throws Exception;

    /** Hand one value to the test: a map, list, text, number or null. Callable from any thread. */
    public void emit(Object row) {
        run.report("row", row);
    }

    /** Hand one object to the test, written as name, value, name, value. Unlike Map.of it takes nulls. */
    public void emit(String name, Object value, Object... more) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put(name, value);
        for (int i = 0; i < more.length; i += 2) {
            row.put((String) more[i], more[i + 1]);
        }
        emit(row);
    }

    /** Next text sent by the test, or null once it asked to stop. */
    public String receive() throws InterruptedException {
        if (stopped) {
            return null;
        }
        Object next = inbox.take();
        stopped = next == STOP;
        return stopped ? null : (String) next;
    }

    public void awaitStop() throws InterruptedException {
        while (receive() != null) {
            continue;
        }
    }

    /**
     * Have the client shut down when the snippet ends, however it ends. Calls get a long time limit: on a busy
     * machine the usual 3 s would make a producer send some messages twice. A push consumer waits for its listeners before it
     * commits for the last time: without that it may leave out the message whose row the test has just taken.
     */
    public <T> T use(T client) {
        clients.push(client);
        set(client, "setSendMsgTimeout", int.class, CALL_TIMEOUT_MS);
        set(client, "setMqClientApiTimeout", int.class, CALL_TIMEOUT_MS);
        set(client, "setAwaitTerminationMillisWhenShutdown", long.class, LISTENER_TIMEOUT_MS);
        return client;
    }

    /** Nothing where the client has no such setting. */
    private static void set(Object client, String setter, Class<?> type, Object value) {
        try {
            client.getClass().getMethod(setter, type).invoke(client, value);
        } catch (NoSuchMethodException e) {
            return;
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(setter, e);
        }
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
