// A Go client for the compatibility tests. It prints one JSON object a line, as the Java snippets do.
//
//	compat send NAMESRV TOPIC BODY...           sends each body, prints the answers
//	compat consume NAMESRV TOPIC GROUP COUNT    prints COUNT messages from the beginning of the topic
//
// With ACCESS_KEY and SECRET_KEY in the environment it signs.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const timeLimit = 120 * time.Second

func main() {
	rlog.SetLogLevel("error")
	var err error
	switch {
	case len(os.Args) > 4 && os.Args[1] == "send":
		err = send(os.Args[2], os.Args[3], os.Args[4:])
	case len(os.Args) == 6 && os.Args[1] == "consume":
		err = consume(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	default:
		err = fmt.Errorf("usage: send NAMESRV TOPIC BODY... | consume NAMESRV TOPIC GROUP COUNT")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func keys() primitive.Credentials {
	return primitive.Credentials{AccessKey: os.Getenv("ACCESS_KEY"), SecretKey: os.Getenv("SECRET_KEY")}
}

func emit(row map[string]any) {
	line, _ := json.Marshal(row)
	fmt.Println(string(line))
}

func send(namesrv, topic string, bodies []string) error {
	p, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{namesrv}),
		producer.WithGroupName("compat_go_producer"),
		producer.WithCredentials(keys()),
		producer.WithInstanceName(strconv.Itoa(os.Getpid())),
	)
	if err != nil {
		return err
	}
	if err = p.Start(); err != nil {
		return err
	}
	for _, body := range bodies {
		result, err := p.SendSync(context.Background(), primitive.NewMessage(topic, []byte(body)))
		if err != nil {
			return err
		}
		emit(map[string]any{
			"status": int(result.Status), "msgId": result.MsgID, "offsetMsgId": result.OffsetMsgID,
			"broker": result.MessageQueue.BrokerName, "queueId": result.MessageQueue.QueueId,
			"queueOffset": result.QueueOffset,
		})
	}
	return p.Shutdown()
}

func consume(namesrv, topic, group, countText string) error {
	count, err := strconv.Atoi(countText)
	if err != nil {
		return err
	}
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer([]string{namesrv}),
		consumer.WithGroupName(group),
		consumer.WithCredentials(keys()),
		consumer.WithInstance(strconv.Itoa(os.Getpid())),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return err
	}
	messages := make(chan *primitive.MessageExt, 100)
	err = c.Subscribe(topic, consumer.MessageSelector{},
		func(_ context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, message := range batch {
				messages <- message
			}
			return consumer.ConsumeSuccess, nil
		})
	if err != nil {
		return err
	}
	if err = c.Start(); err != nil {
		return err
	}
	limit := time.After(timeLimit)
	for i := 0; i < count; i++ {
		select {
		case m := <-messages:
			emit(map[string]any{"body": string(m.Body), "msgId": m.MsgId, "queueOffset": m.QueueOffset})
		case <-limit:
			return fmt.Errorf("%d of %d messages after %v", i, count, timeLimit)
		}
	}
	return c.Shutdown()
}
