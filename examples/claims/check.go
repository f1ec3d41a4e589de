package main

import (
	"context"
	"fmt"
	"io"
	"maps"

	"github.com/thalweg/thalweg"
	"github.com/thalweg/thalweg/topic"
)

// check compares the claims with those that the rows give, and what became of them with
// the rules.
func check(ctx context.Context, node *thalweg.Node, rows []Flight, out io.Writer) error {
	want, wantLetters := map[Claim]int{}, map[Claim]int{}
	for _, f := range rows {
		if c, ok := claimOf(f); ok {
			want[c]++
			if f.Late() >= peopleFrom {
				wantLetters[c]++
			}
		}
	}
	got := map[Claim]int{}
	for r, err := range node.ReadToEnd(ctx, claims, topic.Start()) {
		if err != nil {
			return err
		}
		got[r.Value]++
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("the claims are not those that the flights give: %d, expected are %d", total(got), total(want))
	}
	letters := map[Claim]int{}
	for r, err := range node.ReadToEnd(ctx, topic.New[string, Claim]("claims-for-people"), topic.Start()) {
		if err != nil {
			return err
		}
		letters[r.Value]++
	}
	if !maps.Equal(letters, wantLetters) {
		return fmt.Errorf("the claims for people are not those of long delays: %d, expected are %d", total(letters), total(wantLetters))
	}
	s, err := node.QueueStatus(ctx, "settling")
	if err != nil {
		return err
	}
	settled := int64(0)
	for _, p := range s.Partitions {
		settled += p.Acknowledged
	}
	if n := total(want) - total(wantLetters); settled != int64(n) {
		return fmt.Errorf("%d claims were settled, expected are %d", settled, n)
	}
	fmt.Fprintf(out, "all %d claims are there, once each: %d were settled, %d are for people\n", total(want), settled, total(letters))
	return nil
}

func total(counts map[Claim]int) (n int) {
	for _, times := range counts {
		n += times
	}
	return n
}
