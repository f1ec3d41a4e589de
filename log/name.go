package log

import (
	"fmt"
	"strconv"
	"strings"
)

// maxNameBytes leaves room for the partition number in a file name of 255 bytes.
const maxNameBytes = 249

// ValidateName tells whether topic can be a topic's name: 1 to 249 of the
// characters a-z, A-Z, 0-9, '.', '_' and '-', and neither "." nor "..". The error
// matches ErrInvalidName and says what is wrong.
func ValidateName(topic string) error {
	switch {
	case topic == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidName)
	case topic == "." || topic == "..":
		return fmt.Errorf("%w: %q names a directory", ErrInvalidName, topic)
	case len(topic) > maxNameBytes:
		return fmt.Errorf("%w: %.32q... has %d bytes, at most %d are allowed", ErrInvalidName, topic, len(topic), maxNameBytes)
	}
	for i, c := range topic {
		legal := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
		if !legal {
			return fmt.Errorf("%w: %q has %q at byte %d, allowed are a-z, A-Z, 0-9, '.', '_' and '-'", ErrInvalidName, topic, c, i)
		}
	}
	return nil
}

// parsePartitionDir is the inverse of TopicPartition.String.
func parsePartitionDir(dir string) (TopicPartition, bool) {
	at := strings.LastIndexByte(dir, '-')
	if at < 0 {
		return TopicPartition{}, false
	}
	number, err := strconv.ParseInt(dir[at+1:], 10, 32)
	tp := TopicPartition{Topic: dir[:at], Partition: PartitionID(number)}
	if err != nil || number < 0 || tp.String() != dir || ValidateName(tp.Topic) != nil {
		return TopicPartition{}, false
	}
	return tp, true
}

const (
	offsetDigits = 20

	logSuffix       = ".log"
	indexSuffix     = ".index"
	timeIndexSuffix = ".timeindex"
	txnIndexSuffix  = ".txnindex"
	sealSuffix      = ".seal"
	snapshotSuffix  = ".snapshot"
	temporarySuffix = ".tmp"
)

// offsetName is the name of the file that belongs to offset.
func offsetName(offset Offset, suffix string) string {
	return fmt.Sprintf("%0*d%s", offsetDigits, int64(offset), suffix)
}

// parseOffsetName is the inverse of offsetName.
func parseOffsetName(name, suffix string) (Offset, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != offsetDigits {
		return 0, false
	}
	offset, err := strconv.ParseUint(digits, 10, 63)
	if err != nil {
		return 0, false
	}
	return Offset(offset), true
}
