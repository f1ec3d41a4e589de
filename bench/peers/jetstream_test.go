package peers

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// jetStream is a stream in a file store of a server in this process, which the client
// reaches without a socket.
type jetStream struct {
	server  *server.Server
	conn    *nats.Conn
	js      jetstream.JetStream
	futures []jetstream.PubAckFuture
	sent    int
}

func openJetStream(dir string, synced bool) (store, error) {
	return startJetStream(dir, synced, jetstream.DefaultPersistMode)
}

// openJetStreamAsync has the server write behind its acknowledgements, the fastest way it has.
func openJetStreamAsync(dir string, synced bool) (store, error) {
	return startJetStream(dir, synced, jetstream.AsyncPersistMode)
}

func startJetStream(dir string, synced bool, mode jetstream.PersistModeType) (store, error) {
	ns, err := server.NewServer(&server.Options{JetStream: true, StoreDir: dir, DontListen: true, NoLog: true, NoSigs: true, SyncAlways: synced})
	if err != nil {
		return nil, err
	}
	ns.Start()
	if !ns.ReadyForConnections(10 * time.Second) {
		return nil, errors.New("the server does not start")
	}
	conn, err := nats.Connect("", nats.InProcessServer(ns))
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(4*perBatch))
	if err != nil {
		return nil, err
	}
	_, err = js.CreateStream(context.Background(), jetstream.StreamConfig{
		Name: "peers", Subjects: []string{"peers"}, Storage: jetstream.FileStorage, PersistMode: mode,
	})
	return &jetStream{server: ns, conn: conn, js: js}, err
}

func (s *jetStream) append(values [][]byte) error {
	s.futures = s.futures[:0]
	for _, v := range values {
		f, err := s.js.PublishAsync("peers", v)
		if err != nil {
			return err
		}
		s.futures = append(s.futures, f)
	}
	for _, f := range s.futures {
		select {
		case <-f.Ok():
			s.sent++
		case err := <-f.Err():
			return err
		}
	}
	return nil
}

func (s *jetStream) read(f func(value []byte)) error {
	c, err := s.js.OrderedConsumer(context.Background(), "peers", jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	messages, err := c.Messages(jetstream.PullMaxMessages(5000))
	if err != nil {
		return err
	}
	defer messages.Stop()
	for range s.sent {
		m, err := messages.Next()
		if err != nil {
			return err
		}
		f(m.Data())
	}
	return nil
}

func (s *jetStream) close() error {
	s.conn.Close()
	s.server.Shutdown()
	s.server.WaitForShutdown()
	return nil
}
