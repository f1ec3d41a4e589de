package topic_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

// compressionOf returns how the first batch of a partition is compressed.
func compressionOf(t testing.TB, p *log.Partition) log.Compression {
	r := p.Reader(p.Start(), log.ReadUncommitted)
	defer r.Close()
	b, err := r.Next()
	require.NoError(t, err)
	return b.Compression
}

// A topic's compression is that of its producers' batches, unless a producer has one
// of its own. Readers see no difference, and batches are cut at the size they have
// before compression.
func TestCompression(t *testing.T) {
	text := strings.Repeat("the river is calm ", 20)
	for _, test := range []struct {
		name  string
		topic topic.Topic[string, string]
		own   topic.ProducerOptions
		want  log.Compression
	}{
		{"none", lines, topic.ProducerOptions{}, 0},
		{"gzip", lines.Compress(log.Gzip), topic.ProducerOptions{}, log.Gzip},
		{"snappy", lines.Compress(log.Snappy), topic.ProducerOptions{}, log.Snappy},
		{"lz4", lines.Compress(log.LZ4).CompressionLevel(9), topic.ProducerOptions{}, log.LZ4},
		{"zstd", lines.Compress(log.Zstd).CompressionLevel(19), topic.ProducerOptions{}, log.Zstd},
		{"the producer's", lines.Compress(log.Gzip), topic.ProducerOptions{Compression: log.Zstd, CompressionLevel: 1}, log.Zstd},
		{"the producer's alone", lines, topic.ProducerOptions{Compression: log.Snappy}, log.Snappy},
		{"the producer's none", lines.Compress(log.Gzip), topic.ProducerOptions{Compression: log.NoCompression}, 0},
		{"none asked for", lines.Compress(log.Gzip).Compress(log.NoCompression), topic.ProducerOptions{}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := openNode(t)
			test.own.BatchBytes = 2 << 10
			test.own.Linger = time.Hour
			p, err := topic.NewProducer(t.Context(), n, test.topic, test.own)
			require.NoError(t, err)
			for range 20 {
				require.NoError(t, p.Queue(t.Context(), "k", text))
			}
			require.NoError(t, p.Close())
			require.Equal(t, test.want, compressionOf(t, n.partition(t, "lines", 0)))
			got := all(t, topic.ReadToEnd(t.Context(), n, test.topic, topic.Start()))
			require.Len(t, got, 20)
			for _, r := range got {
				require.Equal(t, text, r.Value)
			}
			r := n.partition(t, "lines", 0).Reader(0, log.ReadCommitted)
			defer r.Close()
			b, err := r.Next()
			require.NoError(t, err)
			require.EqualValues(t, 5, b.Count, "2 KiB of plain records")
		})
	}
}

// Settings that do not go together, or that nobody has, are mistakes of the
// declaration and of the producer.
func TestCompressionThatIsWrong(t *testing.T) {
	require.ErrorContains(t, lines.Compress(5).Err(), "Compress(5)")
	require.ErrorContains(t, lines.CompressionLevel(3).Err(), `topic "lines": CompressionLevel(3): log: compression level 3 is set, but none has no levels`)
	require.ErrorContains(t, lines.Compress(log.Gzip).CompressionLevel(10).Err(), "gzip has 1 to 9")
	require.ErrorContains(t, lines.CompressionLevel(0).Err(), "CompressionLevel(0)")
	require.NoError(t, lines.CompressionLevel(9).Compress(log.Gzip).Err(), "in any order")
	require.ErrorContains(t, lines.MaxRecordBytes(0).Err(), "MaxRecordBytes(0)")

	n := openNode(t)
	_, err := topic.NewProducer(t.Context(), n, lines, topic.ProducerOptions{Compression: log.Snappy, CompressionLevel: 2})
	require.ErrorContains(t, err, "ProducerOptions.Compression and CompressionLevel")
	require.ErrorContains(t, err, "snappy has no levels")
}

// A topic's limit of a record counts key, value and headers as encoded. The error
// names size, limit and topic and what sets the limit; other records are not held up.
func TestMaxRecordBytes(t *testing.T) {
	n := openNode(t)
	limited := lines.MaxRecordBytes(20).Compress(log.Zstd)
	p := produce(t, n, limited)
	fits := topic.Record[string, string]{Key: "key", Value: strings.Repeat("v", 10), Headers: []topic.Header{{Key: "name", Value: []byte("val")}}}
	_, _, err := p.SendRecord(t.Context(), fits)
	require.NoError(t, err)
	larger := fits
	larger.Value += "v"
	_, _, err = p.SendRecord(t.Context(), larger)
	require.ErrorIs(t, err, log.ErrTooLarge)
	require.NotErrorIs(t, err, topic.ErrUnknown)
	e, ok := errors.AsType[*topic.TooLargeError](err)
	require.True(t, ok)
	require.Equal(t, topic.TooLargeError{Topic: "lines", Size: 21, Limit: 20, Setting: "the topic's MaxRecordBytes"}, *e)
	require.EqualError(t, err, `topic "lines": a record of 21 bytes exceeds the limit of 20 bytes, set by the topic's MaxRecordBytes: make the record smaller, or raise that`)
	require.NoError(t, p.Delete(t.Context(), "key"))
	require.Len(t, all(t, topic.ReadToEnd(t.Context(), n, limited, topic.Start())), 2)

	p = produce(t, n, topic.New[string, string]("unlimited"))
	_, _, err = p.SendRecord(t.Context(), topic.Record[string, string]{Value: strings.Repeat("v", 2<<20)})
	require.ErrorContains(t, err, "set by the log's MaxBatchBytes")
}

// In a topic of append times results and readers have the log's time, whatever time a
// record came with.
func TestAppendTimeTopic(t *testing.T) {
	n := openNode(t)
	stamped := lines.AppendTime().EventTime(func(string) time.Time { return at(1) })
	p := produce(t, n, stamped)
	before := time.Now().Add(-time.Millisecond)
	var result topic.Result
	require.NoError(t, p.QueueRecord(t.Context(), topic.Record[string, string]{Key: "k", Value: "v", Time: at(5)}, func(r topic.Result) { result = r }))
	require.NoError(t, p.Flush(t.Context()))
	got := all(t, topic.ReadToEnd(t.Context(), n, stamped, topic.Start()))
	require.Len(t, got, 1)
	require.WithinRange(t, got[0].Time, before, time.Now())
	require.Equal(t, got[0].Time, result.Time)
	require.Len(t, all(t, topic.ReadToEnd(t.Context(), n, stamped, topic.At(before))), 1)
	require.Empty(t, all(t, topic.ReadToEnd(t.Context(), n, stamped, topic.At(time.Now().Add(time.Hour)))))
}

// Records with every combination of absent parts come back from compressed batches
// as they were sent.
func TestCompressedRecordsAreWhatWasSent(t *testing.T) {
	n := openNode(t)
	packed := lines.Compress(log.LZ4)
	p := produce(t, n, packed)
	var want []topic.Record[string, string]
	for range 30 {
		want = append(want,
			topic.Record[string, string]{Key: "k", Value: "v", Time: at(1), Headers: []topic.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte{}}}},
			topic.Record[string, string]{NoKey: true, Value: "v", Time: at(3)},
			topic.Record[string, string]{Key: "k", Deleted: true, Time: at(4)},
			topic.Record[string, string]{Key: "", Value: "", Time: at(-2)})
	}
	for i := range want {
		want[i].Offset = int64(i)
		require.NoError(t, p.QueueRecord(t.Context(), want[i], nil))
	}
	require.NoError(t, p.Flush(t.Context()))
	require.Equal(t, log.LZ4, compressionOf(t, n.partition(t, "lines", 0)))
	require.Equal(t, want, all(t, topic.ReadToEnd(t.Context(), n, packed, topic.Start())))
}

// Compaction is set by chained methods, in any order, and mistakes are told.
func TestCompactionSettings(t *testing.T) {
	tables := topic.New[string, string]("tables").Compact().MinCompactionLag(time.Minute).MaxCompactionLag(time.Hour).
		DirtyRatio(100).TombstoneRetention(2 * time.Hour)
	require.NoError(t, tables.Err())
	require.Equal(t, log.TopicSpec{Partitions: 1, Compact: true, MinCompactionLag: time.Minute, MaxCompactionLag: time.Hour,
		DirtyRatio: 100, TombstoneRetention: 2 * time.Hour}, tables.Spec())
	require.ErrorContains(t, tables.DirtyRatio(0).Err(), "DirtyRatio(0)")
	require.ErrorContains(t, tables.DirtyRatio(1001).Err(), "DirtyRatio(1001)")
	require.ErrorContains(t, tables.TombstoneRetention(0).Err(), "24 hours")
	require.ErrorContains(t, tables.MinCompactionLag(-1).Err(), "MinCompactionLag(-1ns)")
	require.ErrorContains(t, tables.MaxCompactionLag(0).Err(), "MaxCompactionLag(0s)")
	require.ErrorContains(t, tables.MinCompactionLag(2*time.Hour).Err(), "more than MaxCompactionLag(1h0m0s)")
}

// A topic in two places is set by chained methods, and is not compacted.
func TestRemoteSettings(t *testing.T) {
	far := topic.New[string, string]("far").Remote().RetainLocally(time.Hour).RetainLocallyBytes(1 << 30)
	require.NoError(t, far.Err())
	require.Equal(t, log.TopicSpec{Partitions: 1, Remote: true, LocalRetentionAge: time.Hour, LocalRetentionBytes: 1 << 30}, far.Spec())
	require.ErrorContains(t, far.Compact().Err(), "choose one")
	require.ErrorContains(t, far.RetainLocally(0).Err(), "RetainLocally(0s)")
	require.ErrorContains(t, far.RetainLocallyBytes(-1).Err(), "RetainLocallyBytes(-1)")
}
