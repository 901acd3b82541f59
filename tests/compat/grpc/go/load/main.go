// A load of the stock Go client, without end:
//
//	load ENDPOINT TOPIC send UNDER_WAY BYTES
//	load ENDPOINT TOPIC receive UNDER_WAY GROUP     each message is acknowledged by a call of its own
//
// Every second it prints how many calls have failed since its start.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

var failed atomic.Int64

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func note(err error) bool {
	if err == nil {
		return true
	}
	if !strings.Contains(err.Error(), "MESSAGE_NOT_FOUND") {
		if failed.Add(1) <= 10 {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	return false
}

func send(config *rmq.Config, topic string, underWay int, size int) {
	producer, err := rmq.NewProducer(config, rmq.WithTopics(topic))
	must(err)
	must(producer.Start())
	body := make([]byte, size)
	for range underWay {
		go func() {
			for {
				_, err := producer.Send(context.TODO(), &rmq.Message{Topic: topic, Body: body})
				note(err)
			}
		}()
	}
}

func receive(config *rmq.Config, topic string, underWay int, group string) {
	config.ConsumerGroup = group
	all := map[string]*rmq.FilterExpression{topic: rmq.SUB_ALL}
	consumer, err := rmq.NewSimpleConsumer(
		config, rmq.WithSimpleAwaitDuration(5*time.Second), rmq.WithSimpleSubscriptionExpressions(all))
	must(err)
	must(consumer.Start())
	for range underWay {
		go func() {
			for {
				views, err := consumer.Receive(context.TODO(), 32, time.Minute)
				if note(err) {
					for _, view := range views {
						note(consumer.Ack(context.TODO(), view))
					}
				}
			}
		}()
	}
}

func main() {
	rmq.EnableSsl = false
	config := &rmq.Config{Endpoint: os.Args[1], Credentials: &credentials.SessionCredentials{}}
	underWay, err := strconv.Atoi(os.Args[4])
	must(err)
	if os.Args[3] == "send" {
		size, err := strconv.Atoi(os.Args[5])
		must(err)
		send(config, os.Args[2], underWay, size)
	} else {
		receive(config, os.Args[2], underWay, os.Args[5])
	}
	for range time.Tick(time.Second) {
		fmt.Printf("{\"failed\": %d}\n", failed.Load())
	}
}
