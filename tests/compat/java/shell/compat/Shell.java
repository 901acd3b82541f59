package compat;

import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/**
 * One JVM that runs many Java programs for the tests, several at once.
 *
 * <pre>
 * stdin   op (byte) | run (int) | count (int) | count x { bytes (int) | UTF-8 }
 *           S source arg...      compile the source and run its Program
 *           M class arg...       run the main method of a class on the class path
 *           T text               give the text to the run's receive()
 *           E                    let receive() return null
 *           I                    interrupt the run's thread; its stack is its error
 * stdout  one JSON object a line: {"run":1,"row":...} {"run":1,"out":"..."} {"run":1,"err":"..."} {"run":1,"end":error or null}
 * </pre>
 *
 * What a program prints is told apart from what another prints by an inherited thread-local, so a program's own threads
 * count as the program. Output is passed on as it comes: when a program calls System.exit, all that it printed has been told.
 * End of stdin ends the JVM.
 */
public final class Shell {
    private static final PrintStream REPORTS = System.out;
    private static final PrintStream LOG = System.err;
    private static final InheritableThreadLocal<Run> CURRENT = new InheritableThreadLocal<>();
    private static final Compiler COMPILER = new Compiler();
    private static final Map<Integer, Run> RUNS = new ConcurrentHashMap<>();

    private Shell() {
    }

    public static void main(String[] args) throws Exception {
        System.setOut(new PrintStream(new Split("out"), true, "UTF-8"));
        System.setErr(new PrintStream(new Split("err"), true, "UTF-8"));
        Thread hastener = new Thread(Shell::hastenShutdowns, "hastener");
        hastener.setDaemon(true);
        hastener.start();
        DataInputStream in = new DataInputStream(System.in);
        try {
            while (true) {
                serve((char) in.readByte(), in.readInt(), readTexts(in));
            }
        } catch (EOFException e) {
            Runtime.getRuntime().halt(0);
        }
    }

    private static void hastenShutdowns() {
        try {
            while (true) {
                Thread.sleep(50);
                RUNS.values().forEach(Run::hastenShutdown);
            }
        } catch (InterruptedException e) {
            return;
        }
    }

    private static String[] readTexts(DataInputStream in) throws IOException {
        String[] texts = new String[in.readInt()];
        for (int i = 0; i < texts.length; i++) {
            texts[i] = new String(in.readNBytes(in.readInt()), StandardCharsets.UTF_8);
        }
        return texts;
    }

    private static void serve(char op, int id, String[] texts) {
        if (op == 'S' || op == 'M') {
            Run run = new Run(id, op == 'S', texts);
            RUNS.put(id, run);
            run.thread.start();
            return;
        }
        Run run = RUNS.get(id);
        if (run == null) {
            return;
        }
        if (op == 'I') {
            run.interrupt();
        } else if (op == 'E') {
            run.program().stop();
        } else {
            run.program().deliver(texts[0]);
        }
    }

    static final class Run {
        private final int id;
        private final boolean isSnippet;
        private final String[] texts;
        private final ThreadGroup group;
        private final Thread thread;
        private final CompletableFuture<Program> program = new CompletableFuture<>();
        private volatile String interruptedAt;

        Run(int id, boolean isSnippet, String[] texts) {
            this.id = id;
            this.isSnippet = isSnippet;
            this.texts = texts;
            this.group = new ThreadGroup("run-" + id);
            this.thread = new Thread(group, this::execute, "run-" + id);
        }

        /** Texts may come before the snippet is compiled; they wait for it here. */
        Program program() {
            return program.join();
        }

        void interrupt() {
            StringBuilder stack = new StringBuilder("interrupted at\n");
            for (StackTraceElement frame : thread.getStackTrace()) {
                stack.append("    ").append(frame).append('\n');
            }
            interruptedAt = stack.toString();
            thread.interrupt();
        }

        /**
         * A client that shuts down waits for its event thread, which looks up from its empty queue every 3 s only.
         * An interrupt makes it look at once.
         */
        void hastenShutdown() {
            for (StackTraceElement frame : thread.getStackTrace()) {
                if (frame.getMethodName().equals("shutdown") && frame.getClassName().endsWith(".NettyRemotingClient")) {
                    Thread[] threads = new Thread[group.activeCount() + 16];
                    Arrays.stream(threads, 0, group.enumerate(threads))
                        .filter(t -> t.getName().equals("NettyEventExecutor"))
                        .forEach(Thread::interrupt);
                    return;
                }
            }
        }

        void report(String kind, Object value) {
            String line = "{\"run\":" + id + ",\"" + kind + "\":" + Json.write(value) + "}";
            synchronized (REPORTS) {
                REPORTS.println(line);
                REPORTS.flush();
            }
        }

        private void execute() {
            CURRENT.set(this);
            String error = null;
            try {
                if (isSnippet) {
                    runSnippet(texts);
                } else {
                    runMain(texts);
                }
            } catch (Compiler.Failed e) {
                error = e.getMessage();
            } catch (Throwable e) {
                error = interruptedAt == null ? stackTrace(e) : interruptedAt;
            }
            program.complete(new Mute());
            RUNS.remove(id);
            report("end", error);
        }

        private void runSnippet(String[] texts) throws Throwable {
            Class<?> type = COMPILER.load("Snippet" + id, texts[0]);
            Program instance = (Program) type.getDeclaredConstructor().newInstance();
            instance.run = this;
            program.complete(instance);
            try {
                instance.main(tail(texts));
            } finally {
                instance.shutdownClients();
            }
        }

        private void runMain(String[] texts) throws Throwable {
            program.complete(new Mute());
            try {
                Class.forName(texts[0]).getMethod("main", String[].class).invoke(null, (Object) tail(texts));
            } catch (InvocationTargetException e) {
                throw e.getCause();
            }
        }

        private static String[] tail(String[] texts) {
            return Arrays.copyOfRange(texts, 1, texts.length);
        }

        private static String stackTrace(Throwable error) {
            StringWriter text = new StringWriter();
            error.printStackTrace(new PrintWriter(text));
            return text.toString();
        }
    }

    /** Stands in for a snippet where there is none: takes texts and does nothing. */
    private static final class Mute extends Program {
        @Override
        protected void main(String[] args) {
        }
    }

    /** System.out and System.err: to the run whose thread prints, or to the log. */
    private static final class Split extends OutputStream {
        private final String kind;

        Split(String kind) {
            this.kind = kind;
        }

        @Override
        public void write(int b) {
            write(new byte[] {(byte) b}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int start, int count) {
            Run run = CURRENT.get();
            if (run == null || count == 0) {
                LOG.write(bytes, start, count);
            } else {
                run.report(kind, Arrays.copyOfRange(bytes, start, start + count));
            }
        }
    }
}
