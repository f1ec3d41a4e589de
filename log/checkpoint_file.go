package log

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Checkpoint files are text, as Kafka has them: a format version, the number of
// entries, and a line for each. The fields of a line are separated by a space.
//
//	0
//	2
//	flights 0 5100
//	flights 1 4870
const checkpointVersion = 0

// Names of the files beside the partition directories, and of the one inside.
const (
	recoveryPointFile = "recovery-point-offset-checkpoint"
	logStartFile      = "log-start-offset-checkpoint"
	cleanStopFile     = ".thalweg_cleanshutdown"
	registryFile      = "thalweg-topics"
	lockFile          = ".lock"
	leaderEpochFile   = "leader-epoch-checkpoint"
)

// encodeCheckpoint encodes lines.
func encodeCheckpoint(lines []string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%d\n%d\n", checkpointVersion, len(lines))
	for _, line := range lines {
		b.WriteString(line)
		b.WriteByte('\n')
	}
	return []byte(b.String())
}

// decodeCheckpoint returns the lines, each split into as many fields as asked for.
func decodeCheckpoint(b []byte, fields int) ([][]string, error) {
	text, ok := strings.CutSuffix(string(b), "\n")
	if !ok {
		return nil, errors.New("the last line is cut off")
	}
	lines := strings.Split(text, "\n")
	version, err := parseNumber(lines[0], 32)
	if err != nil {
		return nil, fmt.Errorf("line 1 is %.32q, expected a format version", lines[0])
	}
	if version != checkpointVersion {
		return nil, fmt.Errorf("%w: %d, known is %d", ErrVersion, version, checkpointVersion)
	}
	if len(lines) < 2 || lines[1] != strconv.Itoa(len(lines)-2) {
		return nil, fmt.Errorf("line 2 does not tell the number of entries, which is %d", len(lines)-2)
	}
	entries := make([][]string, 0, len(lines)-2)
	for i, line := range lines[2:] {
		entry := strings.Split(line, " ")
		if len(entry) != fields {
			return nil, fmt.Errorf("line %d is %.64q, expected %d fields", i+3, line, fields)
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// parseNumber accepts what strconv.FormatInt writes, and no other spelling.
func parseNumber(s string, bits int) (int64, error) {
	n, err := strconv.ParseInt(s, 10, bits)
	if err != nil || strconv.FormatInt(n, 10) != s {
		return 0, fmt.Errorf("%.32q is no number of %d bits", s, bits)
	}
	return n, nil
}

func compareTopicPartition(a, b TopicPartition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// encodeOffsets encodes an offset for each partition.
func encodeOffsets(offsets map[TopicPartition]Offset) []byte {
	lines := make([]string, 0, len(offsets))
	for _, tp := range slices.SortedFunc(maps.Keys(offsets), compareTopicPartition) {
		lines = append(lines, fmt.Sprintf("%s %d %d", tp.Topic, tp.Partition, offsets[tp]))
	}
	return encodeCheckpoint(lines)
}

func decodeOffsets(b []byte) (map[TopicPartition]Offset, error) {
	entries, err := decodeCheckpoint(b, 3)
	if err != nil {
		return nil, err
	}
	offsets := make(map[TopicPartition]Offset, len(entries))
	for i, entry := range entries {
		tp, err := parseTopicPartition(entry)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+3, err)
		}
		offset, err := parseNumber(entry[2], 64)
		if err != nil || offset < 0 {
			return nil, fmt.Errorf("line %d: %.32q is no offset", i+3, entry[2])
		}
		if _, twice := offsets[tp]; twice {
			return nil, fmt.Errorf("line %d: %s comes twice", i+3, tp)
		}
		offsets[tp] = Offset(offset)
	}
	return offsets, nil
}

func parseTopicPartition(fields []string) (TopicPartition, error) {
	if err := ValidateName(fields[0]); err != nil {
		return TopicPartition{}, err
	}
	number, err := parseNumber(fields[1], 32)
	if err != nil || number < 0 {
		return TopicPartition{}, fmt.Errorf("%.32q is no partition", fields[1])
	}
	return TopicPartition{Topic: fields[0], Partition: PartitionID(number)}, nil
}

// cleanStop is what a clean stop leaves of a partition. It is stale, and so no
// proof, when the partition's files say something else.
type cleanStop struct {
	End   Offset
	Epoch LeaderEpoch // in which the next batch would have been written
}

func encodeCleanStops(stops map[TopicPartition]cleanStop) []byte {
	lines := make([]string, 0, len(stops))
	for _, tp := range slices.SortedFunc(maps.Keys(stops), compareTopicPartition) {
		lines = append(lines, fmt.Sprintf("%s %d %d %d", tp.Topic, tp.Partition, stops[tp].End, stops[tp].Epoch))
	}
	return encodeCheckpoint(lines)
}

func decodeCleanStops(b []byte) (map[TopicPartition]cleanStop, error) {
	entries, err := decodeCheckpoint(b, 4)
	if err != nil {
		return nil, err
	}
	stops := make(map[TopicPartition]cleanStop, len(entries))
	for i, entry := range entries {
		tp, err := parseTopicPartition(entry)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+3, err)
		}
		end, err1 := parseNumber(entry[2], 64)
		epoch, err2 := parseNumber(entry[3], 32)
		_, twice := stops[tp]
		if err1 != nil || err2 != nil || LeaderEpoch(epoch) == endOfEpochs || end < 0 || twice {
			return nil, fmt.Errorf("line %d: %.64q is no clean stop", i+3, strings.Join(entry, " "))
		}
		stops[tp] = cleanStop{End: Offset(end), Epoch: LeaderEpoch(epoch)}
	}
	return stops, nil
}
