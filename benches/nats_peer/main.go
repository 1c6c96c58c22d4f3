// A load program on the official Go client of NATS, for benches/queues.py: what `nats bench` does (js pub async, js consume),
// reduced to what is compared. Prints one line of JSON: messages, seconds, the CPU seconds of this process meanwhile,
// and at low rates the median from handing a message over to its acknowledgement in ms.
//
//	nats_peer publish URL SUBJECT MESSAGES BYTES RATE WINDOW    RATE 0: as fast as it goes; WINDOW: unacknowledged messages
//	nats_peer consume URL STREAM MESSAGES
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func cpuSeconds() float64 {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	total := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	return total.Seconds()
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "nats_peer:", err)
		os.Exit(1)
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	must(err)
	return value
}

// What the first seconds take is the warm-up's.
const measureAfter = 3 * time.Second

// Up to this rate latencies are measured: looking at each acknowledgement costs CPU that the other runs should not show.
const latencyRateMax = 5000

type underway struct {
	sent   time.Time
	future jetstream.PubAckFuture
}

// medianMs waits for the acknowledgements in their order, and sends the median from handing over to acknowledgement.
func medianMs(sent <-chan underway, answer chan<- float64) {
	began := time.Now()
	var took []float64
	for one := range sent {
		select {
		case <-one.future.Ok():
		case err := <-one.future.Err():
			must(err)
		}
		if one.sent.Sub(began) >= measureAfter {
			took = append(took, time.Since(one.sent).Seconds()*1e3)
		}
	}
	sort.Float64s(took)
	if len(took) == 0 {
		answer <- 0
		return
	}
	answer <- took[len(took)/2]
}

func publish(connection *nats.Conn, subject string, messages, bytes, rate, window int) float64 {
	stream, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(window))
	must(err)
	payload := make([]byte, bytes)
	waiting, answer := make(chan underway, window), make(chan float64, 1)
	go medianMs(waiting, answer)
	began := time.Now()
	for sent := 0; sent < messages; sent++ {
		// Sleeps of a millisecond, as any program that paces itself.
		if rate > 0 {
			due := began.Add(time.Duration(float64(sent) / float64(rate) * 1e9))
			if early := time.Until(due); early > time.Millisecond {
				time.Sleep(early)
			}
		}
		// A busy server may leave the window full for longer than the 200 ms that the client waits by itself.
		sent := time.Now()
		future, err := stream.PublishAsync(subject, payload, jetstream.WithStallWait(30*time.Second))
		must(err)
		if rate > 0 && rate <= latencyRateMax {
			waiting <- underway{sent, future}
		}
	}
	<-stream.PublishAsyncComplete()
	close(waiting)
	return <-answer
}

func consume(connection *nats.Conn, name string, messages int) {
	background := context.Background()
	stream, err := jetstream.New(connection)
	must(err)
	consumer, err := stream.CreateConsumer(background, name, jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 100000})
	must(err)
	read, done := 0, make(chan struct{})
	context, err := consumer.Consume(func(message jetstream.Msg) {
		must(message.Ack())
		read++
		if read == messages {
			close(done)
		}
	})
	must(err)
	<-done
	context.Stop()
}

func main() {
	if len(os.Args) < 5 {
		must(fmt.Errorf("expected publish URL SUBJECT MESSAGES BYTES RATE WINDOW or consume URL STREAM MESSAGES"))
	}
	connection, err := nats.Connect(os.Args[2])
	must(err)
	messages := number(os.Args[4])
	began, cpu := time.Now(), cpuSeconds()
	report := map[string]any{"messages": messages}
	switch {
	case os.Args[1] == "publish" && len(os.Args) == 8:
		if median := publish(connection, os.Args[3], messages, number(os.Args[5]), number(os.Args[6]), number(os.Args[7])); median > 0 {
			report["service_p50_ms"] = median
		}
	case os.Args[1] == "consume" && len(os.Args) == 5:
		consume(connection, os.Args[3], messages)
	default:
		must(fmt.Errorf("unknown arguments %v", os.Args[1:]))
	}
	report["seconds"], report["cpu_s"] = time.Since(began).Seconds(), cpuSeconds()-cpu
	must(json.NewEncoder(os.Stdout).Encode(report))
}
