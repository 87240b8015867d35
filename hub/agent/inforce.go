package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/history"
	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
)

// placed is what came of putting the lane of an Instance in force.
type placed struct {
	lanes.Applied
	missing []string // of what it is declared for: pages or CPUs that others have
	rest    []string // what else was refused, or waits
}

// fits says why the lane of an Instance cannot be in force in the place of the one that it has.
func (p *processes) fits(name string, spec api.InstanceSpec) error {
	want, err := api.Lane(name, spec.Lane)
	if err != nil {
		return err
	}
	l, err := lanes.Look(p.lanes)
	if err == nil {
		_, _, err = l.Want([]lane.Lane{want}, false)
	}
	return err
}

// place brings the lane of an Instance in force.
func (p *processes) place(ctx context.Context, l *lanes.Lanes, i desired.Instance) (got placed, err error) {
	var spec api.InstanceSpec
	if err = json.Unmarshal(i.Spec, &spec); err != nil {
		return got, err
	}
	want, err := api.Lane(i.Name, spec.Lane)
	if err != nil {
		return got, err
	}
	next, _, err := l.Want([]lane.Lane{want}, false)
	if err == nil { // the record first: what is in force and has none is somebody else's
		err = os.WriteFile(p.record(i.Name), i.Spec, 0o600)
	}
	if err != nil {
		return got, err
	}
	if got.Applied, err = l.Put(ctx, next); err != nil {
		return got, err
	}
	partitions, err := l.RefusedOf(i.Name)
	if err != nil {
		return got, err
	}
	short, err := l.ShortOfHugepages(i.Name)
	got.lack(i.Name, partitions, short)
	return got, err
}

// lack sorts what the lane has not got. Whose partition a kernel makes in another way, or not at all, has its
// CPUs as far as that kernel lets it.
func (got *placed) lack(name string, partitions []enforce.RefusedStep, short []string) {
	got.missing = short
	for _, r := range partitions {
		if r.Cause == enforce.NotExclusive {
			got.missing = append(got.missing, r.String())
		} else {
			got.rest = append(got.rest, r.String())
		}
	}
	for _, r := range got.Refused {
		if r.Subject == enforce.AnySetting {
			got.rest = append(got.rest, r.String())
		}
	}
	for _, w := range got.Warnings {
		if strings.HasPrefix(w, "lane "+name+": ") {
			got.rest = append(got.rest, w)
		}
	}
	for _, w := range got.Waiting {
		if slices.Contains(w.Lanes, name) {
			got.rest = append(got.rest, w.String())
		}
	}
}

// note keeps what came of putting a lane in force that stays so.
func (p *processes) note(name string, got placed) {
	p.diary.Applied(got.Applied)
	all := slices.Concat(got.missing, got.rest)
	text := strings.Join(all, "; ")
	if text == p.lacks[name] {
		return // it was noted when it last began
	}
	p.lacks[name] = text
	for _, what := range all {
		p.diary.Add(history.Event{Kind: history.Drifted, Lane: name, What: what})
	}
}

// pledge is place for a reservation: one that has not what it is declared for is refused.
func (p *processes) pledge(ctx context.Context, l *lanes.Lanes, i desired.Instance) error {
	got, err := p.place(ctx, l, i)
	switch {
	case err != nil:
		return err
	case len(got.missing) == 0:
		p.note(i.Name, got)
		return nil
	}
	r, err := l.Release(ctx, i.Name)
	return errors.Join(&plan.Refusal{APIVersion: plan.APIVersion, Kind: plan.KindOfRefusal, Lane: i.Name,
		Blocking: got.missing}, err, r.Unfinished())
}

// restore puts the lanes in force again that Instances had before the host went down: together, so that each
// gets a place that leaves the others theirs. What is left of them is Ensure's, one by one.
func (p *processes) restore(ctx context.Context, all map[string]desired.Instance) error {
	if p.cluster != nil {
		return nil // they are those of claims
	}
	want, err := p.recorded(all)
	if err != nil || len(want) == 0 {
		return err
	}
	l, _, err := lanes.OpenPatiently(ctx, p.lanes)
	if err != nil {
		return err
	}
	_, left := l.PutEach(ctx, want, func(a lanes.Applied, perr error) {
		if perr == nil {
			p.diary.Applied(a)
		}
	})
	return errors.Join(append(left, l.Close())...)
}

// recorded are the lanes that this agent has put in force for Instances and that are not so any more.
func (p *processes) recorded(all map[string]desired.Instance) (want [][]lane.Lane, err error) {
	l, err := lanes.Look(p.lanes)
	if err != nil {
		return nil, err
	}
	for _, uid := range slices.Sorted(maps.Keys(all)) {
		i := all[uid]
		_, was, none := p.started(i.Name)
		if _, gone := l.Lane(i.Name); i.Ending || none != nil || !isNoLane(gone) {
			continue
		}
		if is, wrong := api.Lane(i.Name, was.Lane); wrong == nil { // else the record was cut short
			want = append(want, []lane.Lane{is})
		}
	}
	return want, nil
}

// release takes a lane back; one that has gone meanwhile too.
func (p *processes) release(ctx context.Context, name string) error {
	l, _, err := lanes.OpenPatiently(ctx, p.lanes)
	if err != nil {
		return err
	}
	r, err := l.Release(ctx, name)
	switch {
	case err == nil:
		p.diary.Released([]string{name}, "the hub wants it no longer")
		err = r.Unfinished()
	case isNoLane(err):
		err = p.takeBack(ctx, l, name)
	}
	return errors.Join(err, l.Close())
}

// takeBack tries again, each minute, what lanes wait for that were released.
func (p *processes) takeBack(ctx context.Context, l *lanes.Lanes, name string) error {
	w, err := l.Wanted()
	if err != nil {
		return err
	}
	left := w.Unfinished()
	if len(left) == 0 {
		return nil
	}
	if time.Since(p.retried) >= glance {
		p.retried = time.Now()
		if err = l.TakeBack(ctx, left); err != nil || len(l.Waiting()) == 0 {
			return err
		}
	}
	return fmt.Errorf("lane %s is not taken back as a whole: it is tried each minute, and by isolane recover",
		name)
}
