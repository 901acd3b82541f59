// The stock Go client of RocketMQ 5.x under the orders of tests/compat/harness/grpc_clients.py, which describes them.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

type order struct {
	N          int               `json:"n"`
	Op         string            `json:"op"`
	Name       string            `json:"name"`
	Topic      string            `json:"topic"`
	Topics     []string          `json:"topics"`
	Body       string            `json:"body"`
	Tag        string            `json:"tag"`
	Key        string            `json:"key"`
	Group      string            `json:"group"`
	Properties map[string]string `json:"properties"`
	DeliverMs  int64             `json:"deliver_ms"`
	Half       string            `json:"half"`
	Handle     string            `json:"handle"`
	Filter     string            `json:"filter"`
	Sql        bool              `json:"sql"`
	Count      int32             `json:"count"`
	InvisibleS float64           `json:"invisible_s"`
	Ref        int               `json:"ref"`
}

type row map[string]any

var (
	lock    sync.Mutex
	clients = map[string]any{}
	handed  []*rmq.MessageView
)

func say(what row) {
	text, err := json.Marshal(what)
	if err != nil {
		panic(err)
	}
	lock.Lock()
	defer lock.Unlock()
	fmt.Println(string(text))
}

func keep(name string, client any) {
	lock.Lock()
	defer lock.Unlock()
	clients[name] = client
}

func client(name string) any {
	lock.Lock()
	defer lock.Unlock()
	return clients[name]
}

func text(it *string) string {
	if it == nil {
		return ""
	}
	return *it
}

func rowOf(view *rmq.MessageView) row {
	keys := append([]string{}, view.GetKeys()...)
	sort.Strings(keys)
	properties := view.GetProperties()
	if properties == nil {
		properties = map[string]string{}
	}
	return row{
		"id": view.GetMessageId(), "body": string(view.GetBody()), "tag": text(view.GetTag()), "keys": keys,
		"properties": properties, "group": text(view.GetMessageGroup()), "attempt": view.GetDeliveryAttempt(),
	}
}

func config(group string) *rmq.Config {
	return &rmq.Config{Endpoint: os.Args[1], ConsumerGroup: group, Credentials: &credentials.SessionCredentials{}}
}

func expressions(it order) map[string]*rmq.FilterExpression {
	kind := rmq.TAG
	if it.Sql {
		kind = rmq.SQL92
	}
	expression := it.Filter
	if expression == "" {
		expression = "*"
	}
	return map[string]*rmq.FilterExpression{it.Topic: rmq.NewFilterExpressionWithType(expression, kind)}
}

func startProducer(it order) (row, error) {
	check := func(view *rmq.MessageView) rmq.TransactionResolution {
		body := string(view.GetBody())
		say(row{"name": it.Name, "checked": body})
		if strings.HasSuffix(body, "commit") {
			return rmq.COMMIT
		}
		return rmq.ROLLBACK
	}
	checker := rmq.WithTransactionChecker(&rmq.TransactionChecker{Check: check})
	producer, err := rmq.NewProducer(config(""), checker, rmq.WithTopics(it.Topics...))
	if err == nil {
		err = producer.Start()
	}
	if err == nil {
		keep(it.Name, producer)
	}
	return nil, err
}

func send(it order) (row, error) {
	message := &rmq.Message{Topic: it.Topic, Body: []byte(it.Body)}
	if it.Tag != "" {
		message.SetTag(it.Tag)
	}
	if it.Key != "" {
		message.SetKeys(it.Key)
	}
	if it.Group != "" {
		message.SetMessageGroup(it.Group)
	}
	if it.DeliverMs != 0 {
		message.SetDelayTimestamp(time.UnixMilli(it.DeliverMs))
	}
	for name, value := range it.Properties {
		message.AddProperty(name, value)
	}
	producer := client(it.Name).(rmq.Producer)
	if it.Half == "" {
		receipts, err := producer.Send(context.TODO(), message)
		if err != nil {
			return nil, err
		}
		return row{"id": receipts[0].MessageID, "recall": receipts[0].RecallHandle}, nil
	}
	transaction := producer.BeginTransaction()
	receipts, err := producer.SendWithTransaction(context.TODO(), message, transaction)
	if err != nil {
		return nil, err
	}
	switch it.Half {
	case "commit":
		err = transaction.Commit()
	case "rollback":
		err = transaction.RollBack()
	}
	return row{"id": receipts[0].MessageID}, err
}

func recall(it order) (row, error) {
	id, err := client(it.Name).(rmq.Producer).Recall(context.TODO(), it.Topic, it.Handle)
	return row{"id": id}, err
}

func simple(it order) (row, error) {
	consumer, err := rmq.NewSimpleConsumer(
		config(it.Group), rmq.WithSimpleAwaitDuration(5*time.Second), rmq.WithSimpleSubscriptionExpressions(expressions(it)))
	if err == nil {
		err = consumer.Start()
	}
	if err == nil {
		keep(it.Name, consumer)
	}
	return nil, err
}

func seconds(it float64) time.Duration {
	return time.Duration(it * float64(time.Second))
}

func receive(it order) (row, error) {
	views, err := client(it.Name).(rmq.SimpleConsumer).Receive(context.TODO(), it.Count, seconds(it.InvisibleS))
	if codeOf(err) == 40401 {
		err = nil // an empty receive is an error of this client
	}
	if err != nil {
		return nil, err
	}
	rows := []row{}
	for _, view := range views {
		one := rowOf(view)
		lock.Lock()
		one["ref"] = len(handed)
		handed = append(handed, view)
		lock.Unlock()
		rows = append(rows, one)
	}
	return row{"messages": rows}, nil
}

func view(ref int) *rmq.MessageView {
	lock.Lock()
	defer lock.Unlock()
	return handed[ref]
}

func ack(it order) (row, error) {
	return nil, client(it.Name).(rmq.SimpleConsumer).Ack(context.TODO(), view(it.Ref))
}

func change(it order) (row, error) {
	return nil, client(it.Name).(rmq.SimpleConsumer).ChangeInvisibleDuration(view(it.Ref), seconds(it.InvisibleS))
}

func push(it order) (row, error) {
	consume := func(view *rmq.MessageView) rmq.ConsumerResult {
		say(row{"name": it.Name, "message": rowOf(view)})
		body := string(view.GetBody())
		if strings.HasPrefix(body, "bad") || (strings.HasPrefix(body, "once") && view.GetDeliveryAttempt() == 1) {
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	}
	consumer, err := rmq.NewPushConsumer(
		config(it.Group), rmq.WithPushAwaitDuration(5*time.Second), rmq.WithPushSubscriptionExpressions(expressions(it)),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: consume}))
	if err == nil {
		err = consumer.Start()
	}
	if err == nil {
		keep(it.Name, consumer)
	}
	return nil, err
}

func stop(it order) (row, error) {
	return nil, client(it.Name).(interface{ GracefulStop() error }).GracefulStop()
}

var ops = map[string]func(order) (row, error){
	"producer": startProducer, "send": send, "recall": recall, "simple": simple, "receive": receive, "ack": ack,
	"change": change, "push": push, "close": stop,
}

var number = regexp.MustCompile(`\b[456]\d{4}\b`)

func codeOf(err error) int {
	if err == nil {
		return 0
	}
	var status *rmq.ErrRpcStatus
	if errors.As(err, &status) {
		return int(status.GetCode())
	}
	code, _ := strconv.Atoi(number.FindString(err.Error()))
	return code
}

func serve(it order) {
	defer func() {
		if fault := recover(); fault != nil {
			say(row{"n": it.N, "code": 0, "error": fmt.Sprint(fault)})
		}
	}()
	result, err := ops[it.Op](it)
	if err != nil {
		say(row{"n": it.N, "code": codeOf(err), "error": err.Error()})
		return
	}
	if result == nil {
		result = row{}
	}
	say(row{"n": it.N, "result": result})
}

func main() {
	rmq.EnableSsl = os.Args[2] == "tls"
	say(row{"ready": true})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var it order
		if err := json.Unmarshal(lines.Bytes(), &it); err != nil {
			panic(err)
		}
		go serve(it)
	}
}
