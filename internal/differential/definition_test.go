package differential

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// row is a record, without its place in the log.
type row struct {
	key     string
	noKey   bool
	value   int
	deleted bool
	time    int64 // ms since the epoch
}

func (r row) String() string {
	key, value := r.key, fmt.Sprint(r.value)
	if r.noKey {
		key = "-"
	}
	if r.deleted {
		value = "nil"
	}
	return fmt.Sprintf("%s=%s @%d", key, value, r.time)
}

// sorted are the rows as text, in an order that is theirs alone.
func sorted(rows []row) []string {
	text := make([]string, len(rows))
	for i, r := range rows {
		text[i] = r.String()
	}
	slices.Sort(text)
	return text
}

// Functions given to the operators. Folds may not depend on the order of their values, but
// tell which values they had.

const mask = 1<<20 - 1

func mix(v int) int {
	x := uint64(v)*0x9E3779B97F4A7C15 + 1
	return int(x>>29) & mask
}

func add(a, v int) int           { return (a + mix(v)) & mask }
func merge(a, b int) int         { return (a + b) & mask }
func change(v int) int           { return (v*3 + 1) & mask }
func keeps(v int) bool           { return v%3 != 0 }
func several(v int) []int        { return []int{v, v + 1, v + 2}[:v%3] }
func even(v int) bool            { return v%2 == 0 }
func keyOf(v int) string         { return fmt.Sprint("k", v%4) }
func match(v, v2 int) int        { return mix(v<<20 ^ v2) }
func marked(v int, at int64) int { return mix(v) ^ mix(int(at)) }

const absent = -1

// Steps of one record.

func mapped(rows []row) (out []row) {
	for _, r := range rows {
		if !r.deleted {
			r.value = change(r.value)
		}
		out = append(out, r)
	}
	return out
}

func filtered(rows []row) (out []row) {
	for _, r := range rows {
		if r.deleted || keeps(r.value) {
			out = append(out, r)
		}
	}
	return out
}

func flattened(rows []row) (out []row) {
	for _, r := range rows {
		if r.deleted {
			continue
		}
		for _, v := range several(r.value) {
			r.value = v
			out = append(out, r)
		}
	}
	return out
}

func rekeyed(rows []row) (out []row) {
	for _, r := range rows {
		if !r.deleted {
			r.key, r.noKey = keyOf(r.value), false
			out = append(out, r)
		}
	}
	return out
}

// split changes the even ones; a record without a value is not even.
func split(rows []row) (out []row) {
	for _, r := range rows {
		if !r.deleted && even(r.value) {
			r.value = change(r.value)
		}
		out = append(out, r)
	}
	return out
}

// byKey are the rows that a grouping takes, by key, in order of time.
func byKey(rows []row) map[string][]row {
	groups := make(map[string][]row)
	for _, r := range rows {
		if !r.deleted && !r.noKey {
			groups[r.key] = append(groups[r.key], r)
		}
	}
	for _, g := range groups {
		slices.SortStableFunc(g, func(a, b row) int { return cmp.Compare(a.time, b.time) })
	}
	return groups
}

// folded is the result of a window that begins at start.
func folded(key string, start int64, rows []row) row {
	a, newest := 0, rows[0].time
	for _, r := range rows {
		a, newest = add(a, r.value), max(newest, r.time)
	}
	return row{key: key, value: marked(a, start), time: newest}
}

// ones are the rows with values that fold to how many they are.
func ones(rows []row) []row {
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].value = one
	}
	return rows
}

const one = 1

// addedOnes is what so many ones fold to.
func addedOnes(n int64) int { return int(n) * mix(one) & mask }

// windowed are the results of windows, each given by those of its rows' times that it
// holds: starts gives the starts for a group, holds tells what is in one.
func windowed(rows []row, starts func(times []int64) []int64, holds func(start, t int64) bool) (out []row) {
	for key, group := range byKey(rows) {
		var times []int64
		for _, r := range group {
			times = append(times, r.time)
		}
		all := starts(slices.Compact(times))
		slices.Sort(all)
		for _, start := range slices.Compact(all) {
			var in []row
			for _, r := range group {
				if holds(start, r.time) {
					in = append(in, r)
				}
			}
			if len(in) > 0 {
				out = append(out, folded(key, start, in))
			}
		}
	}
	return out
}

// hopping are windows [start, start+size) at the multiples of every, moved by offset, all in
// units of so many ms, as are the times of the rows.
func hopping(rows []row, size, every, offset, unit int64) []row {
	return windowed(rows, func(times []int64) (starts []int64) {
		for _, t := range times {
			for step := t/unit - size + 1; step <= t/unit; step++ {
				if (step-offset)%every == 0 {
					starts = append(starts, step*unit)
				}
			}
		}
		return starts
	}, func(start, t int64) bool { return start <= t && t < start+size*unit })
}

// slid are windows [start, start+size] that end with a record or begin just after one.
func slid(rows []row, size int64) []row {
	return windowed(rows, func(times []int64) (starts []int64) {
		for _, t := range times {
			starts = append(starts, t-size, t+1)
		}
		return starts
	}, func(start, t int64) bool { return start <= t && t <= start+size })
}

// daily are the days of a time zone.
func daily(rows []row, zone *time.Location) []row {
	day := func(t int64) int64 {
		y, m, d := time.UnixMilli(t).In(zone).Date()
		return time.Date(y, m, d, 0, 0, 0, 0, zone).UnixMilli()
	}
	return windowed(rows, func(times []int64) (starts []int64) {
		for _, t := range times {
			starts = append(starts, day(t))
		}
		return starts
	}, func(start, t int64) bool { return day(t) == start })
}

// sessions are runs of records at most gap apart.
func sessions(rows []row, gap int64) (out []row) {
	for key, group := range byKey(rows) {
		for len(group) > 0 {
			n := 1
			for n < len(group) && group[n].time-group[n-1].time <= gap {
				n++
			}
			out = append(out, folded(key, group[0].time, group[:n]))
			group = group[n:]
		}
	}
	return out
}

// joined pairs the records of a key whose times fit: right - left in [from, to]. A side that is kept
// gives its records without a match too, also those without a key.
func joined(left, right []row, from, to int64, keepLeft, keepRight bool) (out []row) {
	matched := make(map[int]bool)
	for _, l := range left {
		found := false
		for i, r := range right {
			if l.deleted || r.deleted || l.noKey || r.noKey || l.key != r.key || r.time-l.time < from || r.time-l.time > to {
				continue
			}
			found, matched[i] = true, true
			out = append(out, row{key: l.key, value: match(l.value, r.value), time: max(l.time, r.time)})
		}
		if keepLeft && !found && !l.deleted {
			l.value = match(l.value, absent)
			out = append(out, l)
		}
	}
	for i, r := range right {
		if keepRight && !matched[i] && !r.deleted {
			r.value = match(absent, r.value)
			out = append(out, r)
		}
	}
	return out
}

// looked joins each record of a stream with the row that a table has for its key then. Both are
// in order of time in each partition; at the same time the table goes first.
func looked(stream, table []row, left bool) (out []row) {
	for _, s := range stream {
		if s.deleted || s.noKey && !left {
			continue
		}
		found, value := false, 0
		for _, t := range table {
			if !t.noKey && !s.noKey && t.key == s.key && t.time <= s.time {
				found, value = !t.deleted, t.value
			}
		}
		switch {
		case found:
			s.value = match(s.value, value)
			out = append(out, s)
		case left:
			s.value = match(s.value, absent)
			out = append(out, s)
		}
	}
	return out
}

// newest is what an aggregation without windows ends with.
func newest(rows []row) map[string]int {
	out := make(map[string]int)
	for key, group := range byKey(rows) {
		a := 0
		for _, r := range group {
			a = add(a, r.value)
		}
		out[key] = a
	}
	return out
}
