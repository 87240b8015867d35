package workload

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
)

// Answer is how long a host may take to answer a reservation.
const Answer = 1500 * time.Millisecond

func (p *Instances) markFile(name string) string { return filepath.Join(p.dir, name+".reserved") }

// Reserved returns the names of the reservations that the last agent has left, by UID.
func (p *Instances) Reserved() (map[string]string, error) {
	marks, err := filepath.Glob(p.markFile("*"))
	all := map[string]string{}
	for _, mark := range marks {
		uid, rerr := os.ReadFile(mark)
		err = errors.Join(err, rerr)
		all[string(uid)] = strings.TrimSuffix(filepath.Base(mark), ".reserved")
	}
	return all, err
}

// Reserve puts the lane of an Instance in force if there is room, and returns what is then placed. The error
// is a *plan.Refusal if the host has no room for it.
func (p *Instances) Reserve(ctx context.Context, uid string, i desired.Instance) (plan.Placement, error) {
	ctx, cancel := context.WithTimeout(ctx, Answer)
	defer cancel()
	refused := p.checkAdmissible(ctx, i) // before the lanes are locked: it may ask other programs
	if p.cluster != nil {
		return p.reserveInCluster(ctx, uid, i, refused)
	}
	l, _, err := lanes.OpenPatiently(ctx, p.lanes)
	if err != nil {
		return plan.Placement{}, err
	}
	now, err := placementInForce(l)
	if _, there := now.Lane(i.Name); err == nil && there {
		err = &plan.Refusal{APIVersion: plan.APIVersion, Kind: plan.KindOfRefusal, Lane: i.Name,
			Blocking: []string{"a lane of that name is in force already"}}
	}
	if err == nil {
		err = refused
	}
	if err == nil { // the mark first: a record without a mark belongs to an Instance
		err = desired.WriteFile(p.markFile(i.Name), []byte(uid))
	}
	if err == nil {
		err = p.reserveLane(context.WithoutCancel(ctx), l, i)
		_, none := l.Lane(i.Name)
		_, whole := os.Stat(p.leftoversFile(i.Name))
		if err != nil && none != nil && whole != nil {
			err = errors.Join(err, p.forget(i.Name))
		} else { // also if the release failed: it is settled later
			now = l.Placement
		}
	}
	return now, errors.Join(err, l.Close())
}

// placementInForce returns the placement on this host, with the host named even if nothing is placed.
func placementInForce(l *lanes.Lanes) (plan.Placement, error) {
	now := l.Placement
	if now.Host.Hostname != "" {
		return now, nil
	}
	v, err := l.View()
	now.APIVersion, now.Kind, now.Host = plan.APIVersion, plan.Kind, plan.MachineOf(v.Host)
	return now, err
}

// Marked reports whether a lane is reserved for this Instance, or could not be released after that.
func (p *Instances) Marked(name, uid string) bool {
	by, err := os.ReadFile(p.markFile(name))
	return err == nil && string(by) == uid
}

// Unmark ends the reservation of a lane, which now belongs to an Instance or to nobody.
func (p *Instances) Unmark(name string) error { return os.RemoveAll(p.markFile(name)) }

// forget removes all traces of a reservation.
func (p *Instances) forget(name string) error {
	return errors.Join(os.Remove(p.markFile(name)), os.RemoveAll(p.recordFile(name)),
		os.RemoveAll(p.lacksFile(name)))
}

// checkAdmissible checks that this host has what an Instance runs, and lets it be the user that it asks to
// be. The error is a *plan.Refusal if not.
func (p *Instances) checkAdmissible(ctx context.Context, i desired.Instance) error {
	var spec api.InstanceSpec
	err := json.Unmarshal(i.Spec, &spec)
	if err != nil {
		return err
	}
	if err = p.users.checkUser(spec); err == nil {
		err = p.workload(i.Name, spec).checkPossible(ctx, false)
	}
	if ctx.Err() != nil {
		return ctx.Err() // a program did not answer in time: that is no refusal
	}
	if err != nil {
		return &plan.Refusal{APIVersion: plan.APIVersion, Kind: plan.KindOfRefusal, Lane: i.Name,
			Blocking: []string{err.Error()}}
	}
	return nil
}
