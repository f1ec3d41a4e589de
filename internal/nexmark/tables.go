package nexmark

import (
	"math/bits"
	"strconv"
)

var (
	firstNames  = []string{"Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"}
	lastNames   = []string{"Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"}
	cities      = []string{"Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"}
	states      = []string{"AZ", "CA", "ID", "OR", "WA", "WY"}
	hotChannels = []string{"Google", "Facebook", "Baidu", "Apple"}
)

const (
	fillerBytes  = 1 << 20
	coldChannels = 10_000
)

// channel is where a bid came from. Each has one address.
type channel struct{ name, url string }

// tables hold what events share, so that a bid costs no memory of its own.
type tables struct {
	filler string // Extra is a part of it
	hot    []channel
	cold   []channel
}

func newTables(seed uint64) tables {
	var t tables
	r := random(mix(seed ^ 0x706F6F6C))
	filler := make([]byte, fillerBytes)
	for i := range filler {
		filler[i] = 'a' + byte(r.below(26))
	}
	t.filler = string(filler)

	r = random(mix(seed ^ 0x6368616E))
	for _, name := range hotChannels {
		t.hot = append(t.hot, channel{name, string(r.appendURL(nil))})
	}
	for i := range coldChannels {
		url := r.appendURL(nil)
		if r.below(10) > 0 {
			id := int64(int32(bits.Reverse32(uint32(i))))
			url = strconv.AppendInt(append(url, "&channel_id="...), max(id, -id), 10)
		}
		t.cold = append(t.cold, channel{"channel-" + strconv.Itoa(i), string(url)})
	}
	return t
}

func (r *random) appendURL(dst []byte) []byte {
	dst = append(dst, "https://www.nexmark.com/"...)
	for range 3 {
		dst = append(r.appendWord(dst, 5, '_'), '/')
	}
	return append(dst, "item.htm?query=1"...)
}

// extra is filler for an event that has size bytes without it and average with it.
func (t *tables) extra(r *random, size, average int) string {
	if size > average {
		return ""
	}
	missing := int64(average - size)
	spread := (2*missing + 5) / 10 // a fifth, rounded
	length := missing - spread + r.below(2*spread)
	start := r.below(fillerBytes - length)
	return t.filler[start : start+length]
}
