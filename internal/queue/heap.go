package queue

// alarm is a time at which a delivery of a record wants to be looked at. It is void
// once the record is done or has another count.
type alarm struct {
	at     int64 // Unix ms
	offset int64
	count  int64
}

func (a alarm) before(b alarm) bool {
	return a.at < b.at || a.at == b.at && a.offset < b.offset
}

// alarms is a heap, the earliest first, and of equal ones the lowest offset.
type alarms []alarm

func (h *alarms) push(a alarm) {
	*h = append(*h, a)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if !s[i].before(s[up]) {
			return
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
}

func (h *alarms) pop() {
	s := *h
	last := len(s) - 1
	s[0] = s[last]
	s = s[:last]
	*h = s
	for i := 0; ; {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < len(s) && s[down].before(s[least]) {
				least = down
			}
		}
		if least == i {
			return
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
}
