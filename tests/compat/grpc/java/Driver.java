import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;
import org.apache.rocketmq.shaded.com.google.gson.Gson;

/** The stock Java client of RocketMQ 5.x under the orders of tests/compat/harness/grpc_clients.py, which describes them. */
public final class Driver {
    private static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), true);
    private static final Gson GSON = new Gson();
    private static final Pattern CODE = Pattern.compile("\\b[456]\\d{4}\\b");
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Map<String, AutoCloseable> CLIENTS = new ConcurrentHashMap<>();
    // Instead of 3 s: a busy machine must not look like an incompatibility.
    private static final Duration PATIENCE = Duration.ofSeconds(10);
    private static final List<MessageView> HANDED = new ArrayList<>();
    private static ClientConfiguration configuration;

    /** What an order says; what is missing is empty or nothing. */
    private static final class Order {
        int n;
        String op;
        String name;
        String topic;
        String[] topics;
        String body;
        String tag = "";
        String key = "";
        String group = "";
        Map<String, String> properties = new HashMap<>();
        long deliver_ms;
        String half = "";
        String handle;
        String filter = "*";
        boolean sql;
        int count;
        double invisible_s;
        int ref;
    }

    public static void main(String[] args) throws Exception {
        configuration = ClientConfiguration.newBuilder().setEndpoints(args[0]).enableSsl(args[1].equals("tls"))
            .setRequestTimeout(PATIENCE).build();
        say(Map.of("ready", true));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Order order = GSON.fromJson(line, Order.class);
            Thread thread = new Thread(() -> serve(order));
            thread.setDaemon(true);
            thread.start();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void serve(Order order) {
        try {
            say(Map.of("n", order.n, "result", run(order)));
        } catch (Throwable error) {
            StringBuilder text = new StringBuilder();
            for (Throwable it = error; it != null; it = it.getCause()) {
                text.append(it).append(' ');
            }
            Matcher found = CODE.matcher(text);
            say(Map.of("n", order.n, "code", found.find() ? Integer.parseInt(found.group()) : 0, "error", text));
            error.printStackTrace();
        }
    }

    private static Map<String, ?> run(Order order) throws Exception {
        switch (order.op) {
            case "producer":
                CLIENTS.put(order.name, PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
                    .setTopics(order.topics).setTransactionChecker(view -> check(order.name, view)).build());
                return Map.of();
            case "send":
                return send(order, (Producer) CLIENTS.get(order.name));
            case "recall":
                Producer producer = (Producer) CLIENTS.get(order.name);
                return Map.of("id", producer.recallMessage(order.topic, order.handle).getMessageId().toString());
            case "simple":
                CLIENTS.put(order.name, PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
                    .setConsumerGroup(order.group).setAwaitDuration(Duration.ofSeconds(5))
                    .setSubscriptionExpressions(expressions(order)).build());
                return Map.of();
            case "receive":
                List<Map<String, Object>> rows = new ArrayList<>();
                for (MessageView view : simple(order).receive(order.count, seconds(order))) {
                    Map<String, Object> row = row(view);
                    synchronized (HANDED) {
                        row.put("ref", HANDED.size());
                        HANDED.add(view);
                    }
                    rows.add(row);
                }
                return Map.of("messages", rows);
            case "ack":
                simple(order).ack(handed(order));
                return Map.of();
            case "change":
                simple(order).changeInvisibleDuration(handed(order), seconds(order));
                return Map.of();
            case "push":
                CLIENTS.put(order.name, PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
                    .setConsumerGroup(order.group).setSubscriptionExpressions(expressions(order))
                    .setMessageListener(view -> consume(order.name, view)).build());
                return Map.of();
            case "close":
                CLIENTS.remove(order.name).close();
                return Map.of();
            default:
                throw new IllegalArgumentException(order.op);
        }
    }

    private static Map<String, ?> send(Order order, Producer producer) throws Exception {
        MessageBuilder builder = PROVIDER.newMessageBuilder().setTopic(order.topic)
            .setBody(order.body.getBytes(StandardCharsets.UTF_8));
        if (!order.tag.isEmpty()) {
            builder.setTag(order.tag);
        }
        if (!order.key.isEmpty()) {
            builder.setKeys(order.key);
        }
        if (!order.group.isEmpty()) {
            builder.setMessageGroup(order.group);
        }
        if (order.deliver_ms != 0) {
            builder.setDeliveryTimestamp(order.deliver_ms);
        }
        order.properties.forEach(builder::addProperty);
        if (order.half.isEmpty()) {
            SendReceipt receipt = producer.send(builder.build());
            String handle = receipt.getRecallHandle();
            return Map.of("id", receipt.getMessageId().toString(), "recall", handle == null ? "" : handle);
        }
        Transaction transaction = producer.beginTransaction();
        SendReceipt receipt = producer.send(builder.build(), transaction);
        if (order.half.equals("commit")) {
            transaction.commit();
        } else if (order.half.equals("rollback")) {
            transaction.rollback();
        }
        return Map.of("id", receipt.getMessageId().toString());
    }

    private static TransactionResolution check(String name, MessageView view) {
        String body = body(view);
        say(Map.of("name", name, "checked", body));
        return body.endsWith("commit") ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
    }

    private static ConsumeResult consume(String name, MessageView view) {
        say(Map.of("name", name, "message", row(view)));
        String body = body(view);
        boolean fails = body.startsWith("bad") || (body.startsWith("once") && view.getDeliveryAttempt() == 1);
        return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    }

    private static SimpleConsumer simple(Order order) {
        return (SimpleConsumer) CLIENTS.get(order.name);
    }

    private static MessageView handed(Order order) {
        synchronized (HANDED) {
            return HANDED.get(order.ref);
        }
    }

    private static Duration seconds(Order order) {
        return Duration.ofMillis((long) (order.invisible_s * 1000));
    }

    private static Map<String, FilterExpression> expressions(Order order) {
        FilterExpressionType type = order.sql ? FilterExpressionType.SQL92 : FilterExpressionType.TAG;
        return Map.of(order.topic, new FilterExpression(order.filter, type));
    }

    private static String body(MessageView view) {
        ByteBuffer body = view.getBody().duplicate();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static Map<String, Object> row(MessageView view) {
        Map<String, Object> row = new HashMap<>();
        row.put("id", view.getMessageId().toString());
        row.put("body", body(view));
        row.put("tag", view.getTag().orElse(""));
        row.put("keys", new TreeSet<>(view.getKeys()));
        row.put("properties", view.getProperties());
        row.put("group", view.getMessageGroup().orElse(""));
        row.put("attempt", view.getDeliveryAttempt());
        return row;
    }

    private static void say(Map<String, ?> row) {
        String text = GSON.toJson(row);
        synchronized (OUT) {
            OUT.println(text);
        }
    }
}
