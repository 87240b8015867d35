package frames

// remembered is how many of the frames that were sent last the generator remembers, to know whether they have
// come back: four seconds at a million a second.
const remembered = 1 << 22

// tally records what has come back.
type tally struct {
	seen []uint64 // a bit for each of the last frames
	sent uint64   // frames below this number were sent
	next uint64   // one above the highest number that has arrived: NextExp of RFC 4737

	came, doubled, reordered, foreign uint64
}

func newTally() tally {
	t := tally{seen: make([]uint64, remembered/64)}
	for i := range t.seen {
		t.seen[i] = 1 // touched, so that counting takes no page faults
	}
	clear(t.seen)
	return t
}

// number returns the number of the next frame to send.
func (t *tally) number() uint64 {
	n := t.sent
	t.sent++
	t.seen[n%remembered/64] &^= 1 << (n % 64) // the bit was of an earlier frame
	return n
}

// arrived counts a frame of ours, and reports whether it has arrived for the first time. A frame is foreign
// if nobody has sent it, or if it is no longer remembered.
func (t *tally) arrived(n uint64) bool {
	word, bit := &t.seen[n%remembered/64], uint64(1)<<(n%64)
	switch {
	case n >= t.sent || n+remembered < t.sent:
		t.foreign++
		return false
	case *word&bit != 0:
		t.doubled++
		return false
	}
	*word |= bit
	t.came++
	if n < t.next {
		t.reordered++
	}
	t.next = max(t.next, n+1)
	return true
}

// hear counts a frame that somebody else has sent. Those with lower numbers count as sent before it.
func (t *tally) hear(n uint64) {
	if n >= t.sent+remembered { // nothing of what it remembers is still of use
		clear(t.seen)
		t.sent = n
	}
	for t.sent <= n {
		t.number()
	}
	t.arrived(n)
}

// forget starts over for another stream, whose numbers begin at 0.
func (t *tally) forget() {
	clear(t.seen)
	*t = tally{seen: t.seen}
}
