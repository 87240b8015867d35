package testbed

import (
	"context"
	"time"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/prove/balance"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/prove/network"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/runtime/guest"
)

// underWay is how long segments may still be on their way after a measurement has ended.
const underWay = 100 * time.Millisecond

// sides returns the network namespaces at both ends of what a probe measures, and between them. There is
// nothing to compare if an end is on another kernel, or programs at both ends make their own packets of the
// segments.
func (r *Bed) sides(at place, spec scenario.Probe) (near, far, way []string, ok bool) {
	if spec.Inside() || r.Pods != nil || r.InForce != nil || len(at.given.Ends.Client) > 0 {
		return nil, nil, nil, false
	}
	between := stands(spec)
	if path, err := r.path(at.given.Path); err != nil || speaks(path) || at.given.Guest.Runtime == guest.VM {
		return nil, nil, nil, false
	}
	way = []string{""}
	for i := range layout.Instances(at.given) {
		if between {
			near, way = append(near, network.BehindNetns(i)), append(way, network.ApplicationNetns(i))
		} else {
			far = append(far, network.ApplicationNetns(i))
		}
	}
	if between {
		return near, []string{network.Wire().Netns}, way, true
	}
	return []string{network.Wire().Netns}, far, way, true
}

// dropper is a probe whose application counts itself what it drops.
type dropper interface {
	// Dropped returns what an instance has dropped so far, by who counts it. It fails if nobody answers.
	Dropped(ctx context.Context, c probe.Conditions) (map[string]uint64, error)
}

// dropped returns what all instances of the application have dropped so far.
func (r *Bed) dropped(ctx context.Context, at place, spec scenario.Probe) (map[string]uint64, error) {
	d, is := spec.Probe.(dropper)
	if !is {
		return nil, nil
	}
	all := map[string]uint64{}
	for i := range layout.Instances(at.given) {
		given, err := r.conditions(spec, at, i)
		if err != nil {
			return nil, err
		}
		one, err := d.Dropped(ctx, given)
		if err != nil {
			return nil, named(err, at.given, i)
		}
		for name, n := range one {
			all[network.ApplicationNetns(i)+": "+name] = n
		}
	}
	return all, nil
}

// segments starts counting. It returns a function that ends that, with what was sent and what arrived in both
// directions.
func (r *Bed) segments(ctx context.Context, at place, spec scenario.Probe) (
	end func(context.Context) ([]results.Segments, error), err error) {
	near, far, way, ok := r.sides(at, spec)
	if !ok {
		return func(context.Context) ([]results.Segments, error) { return nil, nil }, nil
	}
	names, all := [...][]string{near, far, way}, [3]balance.Side{}
	for k := range all {
		if all[k].Before, err = balance.Read(names[k]...); err != nil {
			return nil, err
		}
	}
	own, err := r.dropped(ctx, at, spec)
	return func(ctx context.Context) (_ []results.Segments, err error) {
		for end := time.Now().Add(underWay); ; {
			now, err := r.dropped(ctx, at, spec)
			if err != nil {
				return nil, err
			}
			drops := []map[string]uint64{balance.Added(own, now)}
			for k := range all {
				if all[k].Now, err = balance.Read(names[k]...); err != nil {
					return nil, err
				}
				drops = append(drops, all[k].Drops())
			}
			there, sure := balance.Between("there", all[0], all[1], drops...)
			back, also := balance.Between("back", all[1], all[0], drops...)
			switch {
			case !sure || !also || there.Sent+back.Sent == 0:
				return nil, nil
			case there.Unnamed()+back.Unnamed() == 0, time.Now().After(end):
				return []results.Segments{there, back}, nil
			}
			if err = pause(ctx, underWay/10); err != nil {
				return nil, err
			}
		}
	}, err
}
