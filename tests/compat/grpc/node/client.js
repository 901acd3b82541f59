'use strict';
// The stock Node client of RocketMQ 5.x under the orders of tests/compat/harness/grpc_clients.py, which describes them.
const readline = require('node:readline');
const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');

const [ endpoints, transport ] = process.argv.slice(2);
const TAG = 1, SQL = 2, COMMIT = 1, ROLLBACK = 2;
const quiet = { debug() {}, info() {}, warn: (...it) => console.error(...it), error: (...it) => console.error(...it) };
// Instead of 3 s: a busy machine must not look like an incompatibility.
const requestTimeout = 10000;
const common = { endpoints, namespace: '', sslEnabled: transport === 'tls', requestTimeout, logger: quiet };
const clients = new Map();
const handed = [];

const say = row => process.stdout.write(JSON.stringify(row) + '\n');

// Names differ between releases: getters of a view, or plain fields.
const of = (view, getter, field) => (typeof view[getter] === 'function' ? view[getter]() : view[field]);

function row(view) {
  return {
    id: of(view, 'getMessageId', 'messageId'),
    body: of(view, 'getBody', 'body').toString(),
    tag: of(view, 'getTag', 'tag') || '',
    keys: [ ...(of(view, 'getKeys', 'keys') || []) ].sort(),
    properties: Object.fromEntries(of(view, 'getProperties', 'properties') || []),
    group: of(view, 'getMessageGroup', 'messageGroup') || '',
    attempt: of(view, 'getDeliveryAttempt', 'deliveryAttempt'),
  };
}

const subscriptions = order =>
  new Map([[ order.topic, new FilterExpression(order.filter || '*', order.sql ? SQL : TAG) ]]);

async function start(name, client) {
  await client.startup();
  clients.set(name, client);
}

const OPS = {
  async producer(order) {
    const checker = {
      async check(view) {
        const { body } = row(view);
        say({ name: order.name, checked: body });
        return body.endsWith('commit') ? COMMIT : ROLLBACK;
      },
    };
    await start(order.name, new Producer({ ...common, topics: order.topics, checker }));
  },

  async send(order) {
    const message = { topic: order.topic, body: Buffer.from(order.body) };
    if (order.tag) message.tag = order.tag;
    if (order.key) message.keys = [ order.key ];
    if (order.group) message.messageGroup = order.group;
    if (order.deliver_ms) message.deliveryTimestamp = new Date(order.deliver_ms);
    if (order.properties) message.properties = new Map(Object.entries(order.properties));
    const client = clients.get(order.name);
    if (!order.half) {
      const receipt = await client.send(message);
      return { id: receipt.messageId, recall: receipt.recallHandle || '' };
    }
    const transaction = client.beginTransaction();
    const receipt = await client.send(message, transaction);
    if (order.half === 'commit') await transaction.commit();
    if (order.half === 'rollback') await transaction.rollback();
    return { id: receipt.messageId };
  },

  async recall(order) {
    return { id: (await clients.get(order.name).recallMessage(order.topic, order.handle)).messageId };
  },

  async simple(order) {
    const options = { consumerGroup: order.group, subscriptions: subscriptions(order), awaitDuration: 5000 };
    await start(order.name, new SimpleConsumer({ ...common, ...options }));
  },

  async receive(order) {
    const views = await clients.get(order.name).receive(order.count, order.invisible_s * 1000);
    return { messages: views.map(view => ({ ...row(view), ref: handed.push(view) - 1 })) };
  },

  async ack(order) {
    await clients.get(order.name).ack(handed[order.ref]);
  },

  async change(order) {
    await clients.get(order.name).changeInvisibleDuration(handed[order.ref], order.invisible_s * 1000);
  },

  async push(order) {
    const messageListener = {
      async consume(view) {
        const message = row(view);
        say({ name: order.name, message });
        const fails = message.body.startsWith('bad') || (message.body.startsWith('once') && message.attempt === 1);
        return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
      },
    };
    const options = { consumerGroup: order.group, subscriptions: subscriptions(order), messageListener };
    await start(order.name, new PushConsumer({ ...common, ...options }));
  },

  async close(order) {
    const client = clients.get(order.name);
    clients.delete(order.name);
    await client.shutdown();
  },
};

async function serve(order) {
  try {
    say({ n: order.n, result: (await OPS[order.op](order)) || {} });
  } catch (error) {
    const found = /\b[456]\d{4}\b/.exec(String(error));
    say({ n: order.n, code: Number(error.code) >= 40000 ? Number(error.code) : Number(found || 0), error: String(error) });
    console.error(error);
  }
}

process.on('unhandledRejection', error => console.error('unhandled', error));
const input = readline.createInterface({ input: process.stdin });
input.on('line', line => serve(JSON.parse(line)));
input.on('close', () => process.exit(0));
say({ ready: true });
