// Package topic gives partitions a type: topics, producers, consumers.
package topic
