package solver

import (
	"encoding/binary"
	"fmt"
	"slices"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// hasSeen reports whether the search was in this state before at no higher cost. If not, it records the
// state.
func (t *jointSearch) hasSeen(key string, cost plan.Cost) bool {
	if was, ok := t.seen[key]; ok && was.Compare(cost) <= 0 {
		return true
	}
	t.seen[key] = cost
	return false
}

// key identifies a state by what matters to the lanes that are still to be placed: what is free of each core
// of a domain, and the places of lanes that others have wishes about, or that want memory or devices.
func (t *jointSearch) key(depth int) string {
	m := t.m
	b := binary.LittleEndian.AppendUint64(t.scratch[:0], uint64(depth))
	for _, domain := range m.Domains {
		cores := t.cores[:0]
		for c := domain.From; c < domain.To; c++ {
			cores = append(cores, m.StateOf(c, t.placed))
		}
		if t.plain {
			slices.Sort(cores)
		}
		for _, c := range cores {
			b = binary.LittleEndian.AppendUint64(b, c)
		}
		t.cores = cores
	}
	for i := range t.have {
		p := &t.have[i]
		s := p.Spec()
		if t.referenced[i] || s.Near.Lane != "" || len(s.Apart.Lanes) > 0 || s.CPUs.Share > 1 {
			b = append(append(b, ' '), p.CPUs.String()...)
		}
		if p.WantsMemory() {
			b = binary.LittleEndian.AppendUint64(append(b, ' '), uint64(p.Memory))
		}
		if device, ok := p.Device(); ok {
			b = append(append(b, ' '), fmt.Sprint(device)...)
		}
	}
	t.scratch = b
	return string(b)
}

// isReferenced reports whether some lane has a wish about the lane of that name.
func (t *jointSearch) isReferenced(name string) bool {
	return slices.ContainsFunc(t.lanes, func(l lane.Lane) bool { return hasWishAbout(&l.Spec, name) }) ||
		slices.ContainsFunc(t.m.Lanes[:t.placed], func(l plan.Lane) bool { return hasWishAbout(&l.Spec, name) })
}

// hasWishAbout reports whether a lane has a wish about the lane of that name.
func hasWishAbout(s *lane.Spec, name string) bool {
	return s.Near.Lane == name || slices.Contains(s.Apart.Lanes, name)
}
