package frames

// remembered is of how many frames, the last that were sent, the generator knows whether they have come back:
// four seconds of a million a second.
const remembered = 1 << 22

// tally tells what has come back.
type tally struct {
	seen []uint64 // a bit for each of the last frames
	sent uint64   // frames have the numbers below
	next uint64   // one above the highest that has come: NextExp of RFC 4737

	came, doubled, reordered, foreign uint64
}

func newTally() tally {
	t := tally{seen: make([]uint64, remembered/64)}
	for i := range t.seen {
		t.seen[i] = 1 // touched: to count does not meet a page for the first time
	}
	clear(t.seen)
	return t
}

// number is that of the next frame that is sent.
func (t *tally) number() uint64 {
	n := t.sent
	t.sent++
	t.seen[n%remembered/64] &^= 1 << (n % 64) // of the one that had its place
	return n
}

// arrived counts a frame of ours, and says whether it has come for the first time. One that nobody has sent,
// or of which nothing is known any more, is foreign.
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

// hear counts a frame that somebody else has sent, with the numbers below as sent before it.
func (t *tally) hear(n uint64) {
	if n >= t.sent+remembered { // of all that it knows nothing is left
		clear(t.seen)
		t.sent = n
	}
	for t.sent <= n {
		t.number()
	}
	t.arrived(n)
}

// forget is for the frames of another stream, whose numbers begin at 0.
func (t *tally) forget() {
	clear(t.seen)
	*t = tally{seen: t.seen}
}
