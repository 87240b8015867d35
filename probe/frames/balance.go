package frames

import (
	"fmt"
	"strings"
)

// balance says where the frames were lost that did not come back between two looks.
type balance struct {
	known   bool // the forwarder counts: parts are there, within and back; else one, the whole way
	parts   []part
	doubled uint64 // frames that arrived twice, at the end that saw more of them
	noRoom  uint64 // frames that reached the generator's socket and found no room
	said    string // what the forwarder counted
}

// part is a part of the way of frames.
type part struct {
	where string
	lost  uint64
	drops []drop
}

// drop is how many frames somebody reports as dropped.
type drop struct {
	frames uint64
	how    string
	others bool // frames of others may be among them
}

// balance compares what both ends have counted. Both ends of a pair of devices may count the same frame, so
// the greater count of each way is used.
func (g *generator) balance(before, after reply) balance {
	of := func(count func(reply) uint64) uint64 { return count(after) - count(before) }
	out, in := of(func(r reply) uint64 { return r.own.out }), of(func(r reply) uint64 { return r.own.in })
	b := balance{known: before.known && after.known, doubled: g.doubled,
		noRoom: of(func(r reply) uint64 { return r.own.noRoom })}
	if b.known {
		out = max(out, of(func(r reply) uint64 { return r.DeviceIn }))
		in = max(in, of(func(r reply) uint64 { return r.DeviceOut }))
	}
	there := []drop{{out, "dropped by a device on the way there", true}}
	back := []drop{{b.noRoom, "found no room at the generator's socket", false},
		{in, "dropped by a device on the way back", true}}
	missing := g.sent - g.came
	if !b.known {
		b.parts = []part{{"", missing, append(back, there...)}}
		return b
	}
	took, sent := of(func(r reply) uint64 { return r.Took }), of(func(r reply) uint64 { return r.Sent })
	twice := of(func(r reply) uint64 { return r.Doubled })
	b.doubled = max(b.doubled, twice)
	b.said = fmt.Sprintf("it took %d frames, %d of them again, and sent %d back", took, twice, sent)
	// A frame that arrived twice may hide one that was lost. The parts together must account for all that are
	// missing.
	lostThere := min(missing, g.sent-min(g.sent, took-twice))
	within := min(missing-lostThere, took-min(took, sent))
	b.parts = []part{
		{"on the way there", lostThere, append([]drop{{of(func(r reply) uint64 { return r.NoRoom }),
			"found no room at the forwarder's socket", false}}, there...)},
		{"in the forwarder", within, []drop{
			{of(func(r reply) uint64 { return r.Refused }), "could not be forwarded", false},
			{of(func(r reply) uint64 { return r.Full }), "found its ring full", false}}},
		{"on the way back", missing - lostThere - within, back},
	}
	return b
}

// named says who has lost frames of a part, and returns how many lost frames nobody reports.
func (p part) named() (words []string, rest uint64) {
	rest = p.lost
	for _, d := range p.drops {
		n := min(rest, d.frames)
		rest -= n
		switch {
		case n == 0:
		case d.others:
			words = append(words, fmt.Sprintf("at most %d %s", n, d.how))
		default:
			words = append(words, fmt.Sprintf("%d %s", n, d.how))
		}
	}
	if rest > 0 {
		words = append(words, fmt.Sprintf("of %d nobody says where", rest))
	}
	return words, rest
}

// unnamed returns how many frames were lost without a report of where.
func (b balance) unnamed() (n uint64) {
	for _, p := range b.parts {
		_, rest := p.named()
		n += rest
	}
	return n
}

// String says where frames were lost.
func (b balance) String() string {
	var all []string
	for _, p := range b.parts {
		words, _ := p.named()
		said := strings.Join(words, ", ")
		switch {
		case p.lost == 0:
		case p.where == "":
			all = append(all, said)
		default:
			all = append(all, fmt.Sprintf("%d %s (%s)", p.lost, p.where, said))
		}
	}
	return strings.Join(all, ", ")
}
