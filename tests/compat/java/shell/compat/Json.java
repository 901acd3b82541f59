package compat;

import java.lang.reflect.Array;
import java.util.Map;

/** Writes what snippets emit. Bytes become Latin-1 text, so that a test gets them back with encode("latin-1"). */
final class Json {
    private Json() {
    }

    static String write(Object value) {
        StringBuilder out = new StringBuilder();
        append(out, value);
        return out.toString();
    }

    private static void append(StringBuilder out, Object value) {
        if (value == null || value instanceof Boolean || value instanceof Number && isFinite((Number) value)) {
            out.append(value);
        } else if (value instanceof Map) {
            appendMap(out, (Map<?, ?>) value);
        } else if (value instanceof Iterable) {
            appendList(out, (Iterable<?>) value);
        } else if (value instanceof byte[]) {
            appendText(out, new String((byte[]) value, java.nio.charset.StandardCharsets.ISO_8859_1));
        } else if (value.getClass().isArray()) {
            appendArray(out, value);
        } else {
            appendText(out, value instanceof Enum ? ((Enum<?>) value).name() : value.toString());
        }
    }

    private static boolean isFinite(Number number) {
        return Double.isFinite(number.doubleValue());
    }

    private static void appendMap(StringBuilder out, Map<?, ?> map) {
        char before = '{';
        for (Map.Entry<?, ?> entry : map.entrySet()) {
            out.append(before);
            appendText(out, String.valueOf(entry.getKey()));
            out.append(':');
            append(out, entry.getValue());
            before = ',';
        }
        out.append(map.isEmpty() ? "{}" : "}");
    }

    private static void appendList(StringBuilder out, Iterable<?> list) {
        out.append('[');
        String before = "";
        for (Object item : list) {
            out.append(before);
            append(out, item);
            before = ",";
        }
        out.append(']');
    }

    private static void appendArray(StringBuilder out, Object array) {
        out.append('[');
        for (int i = 0; i < Array.getLength(array); i++) {
            out.append(i == 0 ? "" : ",");
            append(out, Array.get(array, i));
        }
        out.append(']');
    }

    private static void appendText(StringBuilder out, String text) {
        out.append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 0x20 || c > 0x7e) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}
