package compat;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import javax.tools.Diagnostic;
import javax.tools.DiagnosticCollector;
import javax.tools.FileObject;
import javax.tools.ForwardingJavaFileManager;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileManager;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;

/** Source text to loaded class, in memory. The same text is compiled once. */
final class Compiler {
    private final JavaCompiler javac = ToolProvider.getSystemJavaCompiler();
    // One file manager for all compilations: it keeps the class path's jar indexes, which is most of javac's work.
    private final StandardJavaFileManager jars = javac.getStandardFileManager(null, null, null);
    private final Map<String, Class<?>> known = new HashMap<>();

    @SuppressWarnings("serial")
    static final class Failed extends Exception {
        Failed(String message) {
            super(message);
        }
    }

    synchronized Class<?> load(String name, String source) throws Failed, ClassNotFoundException {
        Class<?> loaded = known.get(source);
        if (loaded == null) {
            loaded = compile(name, source.replace("SNIPPET_CLASS", name)).loadClass("compat." + name);
            known.put(source, loaded);
        }
        return loaded;
    }

    private ClassLoader compile(String name, String source) throws Failed {
        DiagnosticCollector<JavaFileObject> problems = new DiagnosticCollector<>();
        Memory memory = new Memory(jars);
        JavaFileObject file = new SimpleJavaFileObject(URI.create("string:///compat/" + name + ".java"), JavaFileObject.Kind.SOURCE) {
            @Override
            public CharSequence getCharContent(boolean ignoreEncodingErrors) {
                return source;
            }
        };
        if (!javac.getTask(null, memory, problems, List.of("-proc:none", "-nowarn", "-g"), null, List.of(file)).call()) {
            throw new Failed(describe(problems, source));
        }
        return memory.loader();
    }

    private static String describe(DiagnosticCollector<JavaFileObject> problems, String source) {
        StringBuilder text = new StringBuilder("the snippet does not compile\n");
        String[] lines = source.split("\n");
        for (Diagnostic<?> problem : problems.getDiagnostics()) {
            if (problem.getKind() == Diagnostic.Kind.ERROR) {
                int line = (int) problem.getLineNumber();
                text.append(problem.getMessage(Locale.ENGLISH)).append('\n');
                text.append("    ").append(line > 0 && line <= lines.length ? lines[line - 1].trim() : "").append('\n');
            }
        }
        return text.toString();
    }

    private static final class Memory extends ForwardingJavaFileManager<JavaFileManager> {
        private final Map<String, ByteArrayOutputStream> classes = new HashMap<>();

        Memory(JavaFileManager manager) {
            super(manager);
        }

        @Override
        public JavaFileObject getJavaFileForOutput(Location location, String name, JavaFileObject.Kind kind, FileObject sibling) {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            classes.put(name, bytes);
            return new SimpleJavaFileObject(URI.create("mem:///" + name + ".class"), kind) {
                @Override
                public OutputStream openOutputStream() {
                    return bytes;
                }
            };
        }

        @Override
        public void close() throws IOException {
            flush();
        }

        ClassLoader loader() {
            return new ClassLoader(Compiler.class.getClassLoader()) {
                @Override
                protected Class<?> findClass(String name) throws ClassNotFoundException {
                    ByteArrayOutputStream bytes = classes.get(name);
                    if (bytes == null) {
                        throw new ClassNotFoundException(name);
                    }
                    return defineClass(name, bytes.toByteArray(), 0, bytes.size());
                }
            };
        }
    }
}
