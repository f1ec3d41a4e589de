package topic_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
)

func BenchmarkQueue(b *testing.B) {
	for _, size := range []int{100, 1024} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			l, err := log.Open(b.TempDir(), log.Options{})
			require.NoError(b, err)
			defer l.Close()
			p := produce(b, &node{log: l}, lines.Partitions(4))
			defer p.Close()
			keys := make([]string, 1024)
			for i := range keys {
				keys[i] = fmt.Sprintf("customer-%08d", i)
			}
			value := strings.Repeat("v", size-len(keys[0]))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if err := p.Queue(b.Context(), keys[i%len(keys)], value); err != nil {
					b.Fatal(err)
				}
				i++
			}
			require.NoError(b, p.Flush(b.Context()))
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

func BenchmarkSend(b *testing.B) {
	l, err := log.Open(b.TempDir(), log.Options{})
	require.NoError(b, err)
	defer l.Close()
	p := produce(b, &node{log: l}, lines)
	defer p.Close()
	value := strings.Repeat("v", 100)
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Send(b.Context(), "k", value); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadToEnd(b *testing.B) {
	l, err := log.Open(b.TempDir(), log.Options{})
	require.NoError(b, err)
	defer l.Close()
	n := &node{log: l}
	p := produce(b, n, lines.Partitions(4))
	const records = 500_000
	value := strings.Repeat("v", 84)
	for i := range records {
		require.NoError(b, p.Queue(b.Context(), fmt.Sprintf("customer-%08d", i%1024), value))
	}
	require.NoError(b, p.Close())
	b.ReportAllocs()
	read := 0
	for b.Loop() {
		for _, err := range topic.ReadToEnd(b.Context(), n, lines.Partitions(4), topic.Start()) {
			if err != nil {
				b.Fatal(err)
			}
			read++
		}
	}
	b.ReportMetric(float64(read)/b.Elapsed().Seconds(), "records/s")
}
