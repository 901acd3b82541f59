// A Node client for the compatibility tests. It prints one JSON object a line, as the Java snippets do.
//
//   node client.js send NAMESRV TOPIC BODY...           sends each body, prints the answers
//   node client.js consume NAMESRV TOPIC GROUP COUNT    prints COUNT messages from the beginning of the topic
//
// With ACCESS_KEY and SECRET_KEY in the environment it signs.
'use strict';

const { Producer, Consumer, Message } = require('ali-ons');

const TIME_LIMIT_MS = 120000;

function emit(row) {
  process.stdout.write(JSON.stringify(row) + '\n');
}

function fail(error) {
  console.error(error);
  process.exit(1);
}

function open(Client, namesrv, options) {
  const logger = { info() {}, debug() {}, warn: console.error, error: console.error };
  // The library asks for an HTTP client even when it is told the name server and has nothing to fetch.
  const keys = { accessKey: process.env.ACCESS_KEY, secretKey: process.env.SECRET_KEY };
  const client = new Client({
    nameSrv: namesrv, httpclient: {}, logger, instanceName: String(process.pid), ...keys, ...options,
  });
  client.on('error', console.error); // most of them are not the end: a new group's missing offsets, for one
  return client;
}

async function send(namesrv, topic, ...bodies) {
  const producer = open(Producer, namesrv, { producerGroup: 'compat_node_producer' });
  await producer.ready();
  for (const body of bodies) {
    const sent = await producer.send(new Message(topic, body));
    emit({
      status: sent.sendStatus, msgId: sent.msgId, queueOffset: sent.queueOffset,
      broker: sent.messageQueue.brokerName, queueId: sent.messageQueue.queueId,
    });
  }
}

async function consume(namesrv, topic, group, count) {
  const consumer = open(Consumer, namesrv, {
    consumerGroup: group, consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET', rebalanceInterval: 1000,
  });
  let left = Number(count);
  await new Promise(resolve => {
    consumer.subscribe(topic, '*', async message => {
      emit({ body: message.body.toString(), msgId: message.msgId, queueOffset: message.queueOffset });
      left -= 1;
      if (left === 0) resolve();
    });
  });
}

const [ command, ...args ] = process.argv.slice(2);
setTimeout(() => fail(new Error(`${command} took over ${TIME_LIMIT_MS} ms`)), TIME_LIMIT_MS);
({ send, consume })[command](...args).then(() => process.exit(0), fail);
