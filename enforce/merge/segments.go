package merge

import (
	"cmp"
	"context"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
)

// Asked are questions sent to segments, and their answers. The caller must close them.
type Asked struct {
	questions []question
	answers   []chan error
	wait      sync.WaitGroup
}

// question asks whether somebody who stays has addresses on a lane's segment.
type question struct {
	on      netpath.Lane
	ask     []lane.Address // to ask for
	leaving []string       // MAC addresses whose answers do not count
}

func (q question) same(o question) bool {
	return q.on.Name == o.on.Name && q.on.MAC == o.on.MAC && q.on.Device == o.on.Device &&
		q.on.Uplink == o.on.Uplink && q.on.VLAN == o.on.VLAN && slices.Equal(q.ask, o.ask) &&
		slices.Equal(q.leaving, o.leaving)
}

// questions returns what to ask before the lanes of p are put in force, sorted by lane. It leaves out
// addresses that lanes in force have on the same segment, because they would answer themselves. Answers from
// lanes that are removed, or that get another uplink, do not count.
func questions(root fs.FS, inForce, p plan.Placement) (all []question) {
	var leaving []string
	var there []netpath.Lane
	for _, now := range inForce.Lanes {
		next, stays := p.Lane(now.Name)
		on := netpath.Of(root, now.Name, now.Spec.Network)
		there = append(there, on)
		if !stays || netpath.Of(root, next.Name, next.Spec.Network).Uplink != on.Uplink {
			leaving = append(leaving, on.MAC)
		}
	}
	for _, placed := range p.Lanes {
		next := netpath.Of(root, placed.Name, placed.Spec.Network)
		ask := slices.DeleteFunc(next.Asked(), func(a lane.Address) bool {
			return slices.ContainsFunc(there, func(on netpath.Lane) bool {
				return on.Uplink == next.Uplink && slices.ContainsFunc(on.Asked(),
					func(b lane.Address) bool { return a.Addr() == b.Addr() })
			})
		})
		if next.Path != "" {
			all = append(all, question{next, ask, leaving})
		}
	}
	slices.SortFunc(all, func(a, b question) int { return strings.Compare(a.on.Name, b.on.Name) })
	return all
}

// For asks who has the addresses, or MAC addresses, of lanes on their segments. The lanes need not be placed
// yet. If a, which may be nil, has asked the same questions, For returns a; otherwise it closes a.
func (a *Asked) For(ctx context.Context, root fs.FS, inForce, p plan.Placement) *Asked {
	asked := &Asked{questions: questions(root, inForce, p)}
	if a != nil && slices.EqualFunc(a.questions, asked.questions, question.same) {
		return a
	}
	a.Close()
	for _, q := range asked.questions {
		answer := make(chan error, 1)
		asked.answers = append(asked.answers, answer)
		wait, end := q.on.CheckSegment(q.ask, q.leaving)
		asked.wait.Go(func() {
			err := wait(ctx)
			if err != nil {
				err = refused(q.on.Name, err)
			}
			answer <- err
			end()
		})
	}
	return asked
}

// Unplaced returns the wanted lanes, and without prune also those in force that stay.
func Unplaced(inForce plan.Placement, wanted []lane.Lane, prune bool) (p plan.Placement) {
	for _, w := range wanted {
		p.Lanes = append(p.Lanes, plan.Lane{Name: w.Metadata.Name, Spec: w.Spec})
	}
	for _, stays := range inForce.Lanes {
		if _, is := p.Lane(stays.Name); !is && !prune {
			p.Lanes = append(p.Lanes, stays)
		}
	}
	return p
}

// Answers waits for all answers. Nothing may change before. The error is a *plan.Refusal for the first lane
// that has an address of somebody else.
func (a *Asked) Answers() error {
	var errs []error
	for _, answer := range a.answers {
		errs = append(errs, <-answer)
	}
	return cmp.Or(errs...)
}

// Close waits until the kernel has closed the sockets of the questions. a may be nil.
func (a *Asked) Close() {
	if a != nil {
		a.wait.Wait()
	}
}
