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

// Asked are questions to segments. Who asks closes it.
type Asked struct {
	questions []question
	answers   []chan error
	wait      sync.WaitGroup
}

// question is whether somebody has addresses on a lane's segment: somebody who stays.
type question struct {
	on      netpath.Lane
	ask     []lane.Address
	leaving []string // MAC addresses
}

func (q question) same(o question) bool {
	return q.on.Name == o.on.Name && q.on.MAC == o.on.MAC && q.on.Device == o.on.Device &&
		q.on.Uplink == o.on.Uplink && q.on.VLAN == o.on.VLAN && slices.Equal(q.ask, o.ask) &&
		slices.Equal(q.leaving, o.leaving)
}

// questions are those before the lanes of p come in force, by name. What lanes have on a segment by now is
// not asked for: they would answer themselves. Nor do answers count of lanes that are on another card of the
// segment now, and leave it.
func questions(root fs.FS, inForce, p plan.Placement) (all []question) {
	var leaving []string
	for _, now := range inForce.Lanes {
		next, stays := p.Lane(now.Name)
		on := netpath.Of(root, now.Name, now.Spec.Network)
		if !stays || netpath.Of(root, next.Name, next.Spec.Network).Uplink != on.Uplink {
			leaving = append(leaving, on.MAC)
		}
	}
	for _, placed := range p.Lanes {
		next := netpath.Of(root, placed.Name, placed.Spec.Network)
		ask := slices.DeleteFunc(next.Asked(), func(a lane.Address) bool {
			return slices.ContainsFunc(inForce.Lanes, func(now plan.Lane) bool {
				on := netpath.Of(root, now.Name, now.Spec.Network)
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

// For asks who has the addresses, or MAC addresses, of lanes on their segments, which need not be placed yet.
// It returns a where that has asked just this. a may be nil.
func (a *Asked) For(ctx context.Context, root fs.FS, inForce, p plan.Placement) *Asked {
	asked := &Asked{questions: questions(root, inForce, p)}
	if a != nil && slices.EqualFunc(a.questions, asked.questions, question.same) {
		return a
	}
	a.Close()
	for _, q := range asked.questions {
		answer := make(chan error, 1)
		asked.answers = append(asked.answers, answer)
		asked.wait.Go(func() {
			q.on.CheckSegment(ctx, q.ask, q.leaving, func(err error) {
				if err != nil {
					err = refused(q.on.Name, err)
				}
				answer <- err
			})
		})
	}
	return asked
}

// Unplaced are wanted lanes, and with them those in force that stay.
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

// Answers wait for all of them. Nothing is to change before: the error is a *plan.Refusal for the first lane
// one of whose addresses somebody else has.
func (a *Asked) Answers() error {
	var errs []error
	for _, answer := range a.answers {
		errs = append(errs, <-answer)
	}
	return cmp.Or(errs...)
}

// Close waits until the kernel has closed what asked. a may be nil.
func (a *Asked) Close() {
	if a != nil {
		a.wait.Wait()
	}
}
