package topic_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/topic"
	"github.com/thalweg/thalweg/topic/codec"
)

// A declaration never fails; what is wrong with it is all there in Err.
func TestErrOfDeclaration(t *testing.T) {
	type decl = topic.Topic[string, string]
	valid := topic.New[string, string]("orders")
	for _, c := range []struct {
		name string
		t    decl
		want []string // in the error; none means no error
	}{
		{"plain", valid, nil},
		{"all characters", topic.New[string, string]("aZ09._-"), nil},
		{"longest name", topic.New[string, string](strings.Repeat("x", 249)), nil},
		{"one underscore", topic.New[string, string]("_x"), nil},
		{"zero topic", decl{}, []string{"empty"}},
		{"too long", topic.New[string, string](strings.Repeat("x", 250)), []string{"250 bytes", "at most 249"}},
		{"dot", topic.New[string, string]("."), []string{"directory"}},
		{"dots", topic.New[string, string](".."), []string{"directory"}},
		{"path", topic.New[string, string]("a/b"), []string{`"a/b"`, "byte 1"}},
		{"backslash", topic.New[string, string](`a\b`), []string{"byte 1"}},
		{"zero byte", topic.New[string, string]("ab\x00"), []string{"byte 2"}},
		{"umlaut", topic.New[string, string]("ä"), []string{"byte 0"}},
		{"space", topic.New[string, string]("a b"), []string{"byte 1"}},
		{"reserved", topic.New[string, string]("__metadata"), []string{"reserved"}},
		{"no partitions", valid.Partitions(0), []string{`"orders"`, "Partitions(0)", "between 1 and 4096"}},
		{"negative partitions", valid.Partitions(-3), []string{"Partitions(-3)"}},
		{"most partitions", valid.Partitions(topic.MaxPartitions), nil},
		{"too many partitions", valid.Partitions(topic.MaxPartitions + 1), []string{"Partitions(4097)"}},
		{"nil codecs", valid.KeyCodec(nil).ValueCodec(nil), []string{"KeyCodec(nil)", "ValueCodec(nil)", "default of string"}},
		{"nil functions", valid.EventTime(nil).PartitionBy(nil), []string{"EventTime(nil)", "PartitionBy(nil)"}},
		{"sync", valid.Sync(log.SyncAlways), nil},
		{"sync of a negative interval", valid.Sync(log.SyncEvery(-time.Second)), []string{"Sync(-1000000000)"}},
		{"no segment", valid.SegmentBytes(0), []string{"SegmentBytes(0)"}},
		{"everything", topic.New[string, string]("a/b").Partitions(0).SegmentBytes(-1),
			[]string{"byte 1", "Partitions(0)", "SegmentBytes(-1)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.t.Err()
			if c.want == nil {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			for _, s := range c.want {
				require.ErrorContains(t, err, s)
			}
		})
	}
	require.ErrorIs(t, topic.New[string, string]("a/b").Err(), log.ErrInvalidName)
}

// The methods return copies: a topic others hold does not change.
func TestTopicIsAValue(t *testing.T) {
	plain := topic.New[string, string]("orders")
	changed := plain.Partitions(4).Sync(log.SyncAlways).SegmentBytes(1 << 20).Uncommitted().
		EventTime(func(string) time.Time { return time.Time{} }).
		PartitionBy(func(string, int) int { return 0 })

	require.Equal(t, "orders", changed.Name())
	require.Equal(t, log.TopicSpec{Partitions: 4, Sync: log.SyncAlways, SegmentBytes: 1 << 20}, changed.Spec())
	require.True(t, changed.IsUncommitted())
	require.NotNil(t, changed.EventTimeFunc())
	require.NotNil(t, changed.Partitioner())
	require.Equal(t, log.ReadUncommitted, changed.Isolation())

	require.Equal(t, log.TopicSpec{Partitions: 1}, plain.Spec())
	require.False(t, plain.IsUncommitted())
	require.Nil(t, plain.EventTimeFunc())
	require.Nil(t, plain.Partitioner())
	require.Equal(t, log.ReadCommitted, plain.Isolation())

	_ = plain.Partitions(0)
	require.NoError(t, plain.Err())
}

// Codecs set go before those of a registry; what has neither is named.
func TestCodecsOfTopic(t *testing.T) {
	refuse := errors.New("refused")
	own := codec.Func(
		func(dst []byte, s string) ([]byte, error) { return append(dst, "own "+s...), nil },
		func(src []byte) (string, error) { return "", refuse },
	)
	keys, values, err := topic.New[string, string]("orders").KeyCodec(own).Codecs(nil)
	require.NoError(t, err)
	key, err := keys.Append(nil, "k")
	require.NoError(t, err)
	require.Equal(t, "own k", string(key))
	value, err := values.Append(nil, "v")
	require.NoError(t, err)
	require.Equal(t, "v", string(value))

	_, _, err = topic.New[chan int, func()]("orders").Codecs(nil)
	require.ErrorContains(t, err, `"orders"`)
	require.ErrorContains(t, err, "keys of type chan int")
	require.ErrorContains(t, err, "KeyCodec")
	require.ErrorContains(t, err, "values of type func()")
}
