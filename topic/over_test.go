package topic_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

// A directory that holds some of a topic's partitions is read by type, all of them or
// one by its number, and takes no producer.
func TestReadOverADirectory(t *testing.T) {
	mem := vfs.NewMem()
	l, err := log.Open("data", log.Options{FS: mem})
	require.NoError(t, err)
	n := &node{log: l, fs: mem}
	packed := lines.Partitions(3).Compress(log.Gzip)
	p := produce(t, n, packed)
	for i := range 60 {
		require.NoError(t, p.Queue(t.Context(), fmt.Sprint("key ", i), strings.Repeat("v", i)))
	}
	require.NoError(t, p.Close())
	want := all(t, topic.ReadToEnd(t.Context(), n, packed, topic.Start()))
	require.NoError(t, l.Close())
	require.NoError(t, mem.RemoveAll("data/lines-1"))

	l, err = log.OpenReadOnly("data", log.Options{FS: mem}, "lines")
	require.NoError(t, err)
	defer l.Close()
	over := topic.Over(l)
	var zero, two []topic.Record[string, string]
	for _, r := range want {
		switch r.Partition {
		case 0:
			zero = append(zero, r)
		case 2:
			two = append(two, r)
		}
	}
	require.NotEmpty(t, zero)
	require.NotEmpty(t, two)
	require.Equal(t, append(zero, two...), all(t, topic.ReadToEnd(t.Context(), over, lines, topic.Start())), "one partition after the other, a batch each")
	require.Equal(t, two, all(t, topic.ReadPartitionToEnd(t.Context(), over, lines, 2, topic.Start())))
	for _, err := range topic.ReadPartitionToEnd(t.Context(), over, lines, 1, topic.Start()) {
		require.ErrorIs(t, err, log.ErrUnknownTopic)
		require.ErrorContains(t, err, `"lines", which has 2, the last is 2`)
	}
	for _, err := range topic.ReadToEnd(t.Context(), over, topic.New[string, string]("missing"), topic.Start()) {
		require.ErrorIs(t, err, log.ErrUnknownTopic)
	}
	var last error
	for _, err := range topic.Read(t.Context(), over, lines, topic.Start()) {
		last = err
	}
	require.ErrorIs(t, last, log.ErrReadOnly, "nothing more will come")
	_, err = topic.NewProducer(t.Context(), over, lines, topic.ProducerOptions{})
	require.ErrorIs(t, err, log.ErrReadOnly)
}

// A directory that was copied from elsewhere is read as it lies.
func ExampleOver() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	copyOfBroker(dir) // has the folder "temperatures-0"

	l, err := log.OpenReadOnly(dir, log.Options{}, "temperatures")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	temperatures := topic.New[string, string]("temperatures")
	for r, err := range topic.ReadToEnd(context.Background(), topic.Over(l), temperatures, topic.Start()) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(r.Offset, r.Key, r.Value)
	}
	// Output:
	// 0 berlin 21
	// 1 oslo 14
}

// copyOfBroker writes what stands for a broker's data.
func copyOfBroker(dir string) {
	l, err := log.Open(dir, log.Options{})
	if err != nil {
		panic(err)
	}
	defer l.Close()
	name := log.TopicPartition{Topic: "temperatures"}
	if err := l.Create(name.Topic, log.TopicSpec{Partitions: 1}); err != nil {
		panic(err)
	}
	p, err := l.Partition(name)
	if err != nil {
		panic(err)
	}
	records := []log.Record{{Key: []byte("berlin"), Value: []byte("21")}, {Key: []byte("oslo"), Value: []byte("14")}}
	if _, err := p.AppendRecords(context.Background(), records...); err != nil {
		panic(err)
	}
}
