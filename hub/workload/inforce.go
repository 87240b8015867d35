package workload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/history"
	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
)

// putResult is the result of putting the lane of an Instance in force.
type putResult struct {
	lanes.Applied
	missing []string // declared parts that it lacks: pages or CPUs that others have
	rest    []string // other steps that were refused, or wait
}

// checkFits says why the lane of an Instance cannot be in force in place of its present one.
func (p *Instances) checkFits(name string, spec api.InstanceSpec) error {
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

// putLane puts the lane of an Instance in force.
func (p *Instances) putLane(ctx context.Context, l *lanes.Lanes, i desired.Instance) (
	got putResult, err error) {
	var spec api.InstanceSpec
	if err = json.Unmarshal(i.Spec, &spec); err != nil {
		return got, err
	}
	want, err := api.Lane(i.Name, spec.Lane)
	if err != nil {
		return got, err
	}
	next, _, err := l.Want([]lane.Lane{want}, false)
	if err == nil { // the record first: a lane in force without a record is somebody else's
		err = p.writeRecord(i)
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
	got.sortRefused(i.Name, partitions, short)
	return got, err
}

// sortRefused sorts the refused steps of a lane. If the kernel makes another kind of partition, or none, the
// lane still has its CPUs as far as that kernel allows, so only a partition that is not exclusive counts as
// missing.
func (got *putResult) sortRefused(name string, partitions []enforce.RefusedStep, short []string) {
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

// storeLacks stores what a lane lacks after it was put in force.
func (p *Instances) storeLacks(name string, got putResult) error {
	p.diary.Applied(got.Applied)
	all := slices.Concat(got.missing, got.rest)
	text := strings.Join(all, "; ")
	was, err := p.readLacks(name)
	if err == nil && text == was {
		return nil // it was noted when the lane was last put in force
	}
	for _, what := range all {
		p.diary.Add(history.Event{Kind: history.Drifted, Lane: name, What: what})
	}
	return desired.WriteFile(p.lacksFile(name), []byte(text))
}

// lacksFile returns the file of what a lane lacks since it was put in force. The next agent reads it too.
func (p *Instances) lacksFile(name string) string { return p.recordFile(name) + ".lacks" }

func (p *Instances) readLacks(name string) (string, error) {
	text, err := os.ReadFile(p.lacksFile(name))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return string(text), err
}

// reserveLane is putLane for a reservation: it refuses a lane that lacks a declared part. On failure it
// releases the lane again if it was put in force.
func (p *Instances) reserveLane(ctx context.Context, l *lanes.Lanes, i desired.Instance) error {
	got, err := p.putLane(ctx, l, i)
	switch {
	case err == nil && len(got.missing) == 0:
		if err = p.storeLacks(i.Name, got); err == nil {
			return nil
		}
	case err == nil:
		err = &plan.Refusal{APIVersion: plan.APIVersion, Kind: plan.KindOfRefusal, Lane: i.Name,
			Blocking: got.missing}
	}
	if _, none := l.Lane(i.Name); none != nil {
		return err
	}
	return errors.Join(err, p.releaseFrom(ctx, l, i.Name))
}

// Restore puts the lanes that Instances had before a reboot in force again. It does so together, so that each
// gets a place that leaves the others theirs. Ensure does the rest, one by one.
func (p *Instances) Restore(ctx context.Context, all map[string]desired.Instance) error {
	if p.cluster != nil {
		return nil // their lanes belong to claims
	}
	want, err := p.lanesToRestore(all)
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

// lanesToRestore returns the lanes that this agent has put in force for Instances, and that no longer are.
func (p *Instances) lanesToRestore(all map[string]desired.Instance) (want [][]lane.Lane, err error) {
	l, err := lanes.Look(p.lanes)
	if err != nil {
		return nil, err
	}
	for _, uid := range slices.Sorted(maps.Keys(all)) {
		i := all[uid]
		_, was, none := p.readRecord(i)
		if _, gone := l.Lane(i.Name); i.Ending || none != nil || !isNoLane(gone) {
			continue
		}
		if is, wrong := api.Lane(i.Name, was.Lane); wrong == nil { // else the record is incomplete
			want = append(want, []lane.Lane{is})
		}
	}
	return want, nil
}

// release takes a lane back. A lane that has gone meanwhile is no error.
func (p *Instances) release(ctx context.Context, name string) error {
	l, _, err := lanes.OpenPatiently(ctx, p.lanes)
	if err != nil {
		return err
	}
	return errors.Join(p.releaseFrom(ctx, l, name), l.Close())
}

func (p *Instances) releaseFrom(ctx context.Context, l *lanes.Lanes, name string) error {
	if _, none := l.Lane(name); none != nil {
		return cmp.Or(l.Recorded(), p.takeBack(ctx, l, name))
	}
	others, err := unfinishedSteps(l)
	if err != nil {
		return err
	}
	// Before the release, so that what it leaves is known after a kill.
	noted := p.writeLeftovers(name, leftovers{Others: others})
	r, err := l.Release(ctx, name)
	if err != nil {
		return errors.Join(err, noted)
	}
	p.diary.Released([]string{name}, "the hub wants it no longer")
	left, err := unfinishedSteps(l)
	if left = stepsExcept(left, others); err != nil || len(left) == 0 {
		return errors.Join(err, os.RemoveAll(p.leftoversFile(name)))
	}
	p.retriedAt[name] = time.Now()
	return errors.Join(p.writeLeftovers(name, leftovers{Left: left}), cmp.Or(r.Unfinished(), notTakenBack(name)))
}

// leftovers are steps that releases could not take back. Those of other Instances do not keep this one from
// ending.
type leftovers struct {
	Others []journal.Step `json:"others,omitempty"` // from before the release of this Instance
	Left   []journal.Step `json:"left,omitempty"`   // by this Instance; empty while its release goes on
}

func (p *Instances) leftoversFile(name string) string { return p.recordFile(name) + ".left" }

func (p *Instances) writeLeftovers(name string, l leftovers) error {
	text, err := json.Marshal(l)
	if err == nil {
		err = desired.WriteFile(p.leftoversFile(name), text)
	}
	return err
}

func stepsExcept(steps, others []journal.Step) []journal.Step {
	return slices.DeleteFunc(steps, func(s journal.Step) bool { return slices.Contains(others, s) })
}

func notTakenBack(name string) error {
	return fmt.Errorf("lane %s is not taken back as a whole: it is tried each minute, and by isolane recover",
		name)
}

// unfinishedSteps returns the steps that released lanes have left.
func unfinishedSteps(l *lanes.Lanes) ([]journal.Step, error) {
	w, err := l.Wanted()
	if err != nil {
		return nil, err
	}
	return w.Unfinished(), nil
}

// takeBackInterval is how often the agent tries to take back what a lane has left.
const takeBackInterval = time.Minute

// takeBack tries again to take back what a released lane has left.
func (p *Instances) takeBack(ctx context.Context, l *lanes.Lanes, name string) error {
	text, err := os.ReadFile(p.leftoversFile(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var of leftovers
	if err == nil {
		err = json.Unmarshal(text, &of)
	}
	still := func() (steps []journal.Step, uerr error) {
		steps, uerr = unfinishedSteps(l)
		return slices.DeleteFunc(steps, func(s journal.Step) bool {
			return slices.Contains(of.Others, s) || len(of.Left) > 0 && !slices.Contains(of.Left, s)
		}), uerr
	}
	var left []journal.Step
	if err == nil {
		left, err = still()
	}
	if err == nil && len(left) > 0 && len(of.Left) == 0 { // a kill came before its own were noted
		of = leftovers{Left: slices.Clone(left)}
		err = p.writeLeftovers(name, of)
	}
	if err == nil && len(left) > 0 && time.Since(p.retriedAt[name]) >= takeBackInterval {
		p.retriedAt[name] = time.Now()
		if err = l.TakeBack(ctx, left); err == nil {
			left, err = still()
		}
	}
	if err == nil && len(left) > 0 {
		err = notTakenBack(name)
	}
	return err
}
