package agent

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
)

// reservation is a lane in force in which nothing runs yet: the hub has asked whether this host takes it, and
// has not confirmed it. It is on disk too, so that the next agent knows it.
type reservation struct {
	name  string
	since time.Time
	said  api.InstanceStatus // to the hub; nothing by this agent
}

// How long a reservation is kept for the hub to confirm it, how long it is kept where the hub cannot be told
// that it ends, and how long the host may think about one.
const (
	lapse    = 30 * time.Second
	forsaken = 5 * time.Minute
	answer   = 1500 * time.Millisecond
)

func (p *processes) mark(name string) string { return filepath.Join(p.dir, name+".reserved") }

// reservations are those that the last agent has left.
func (p *processes) reservations() (map[string]reservation, error) {
	marks, err := filepath.Glob(p.mark("*"))
	all := map[string]reservation{}
	for _, mark := range marks {
		uid, rerr := os.ReadFile(mark)
		err = errors.Join(err, rerr)
		name := strings.TrimSuffix(filepath.Base(mark), ".reserved")
		all[string(uid)] = reservation{name: name, since: time.Now()}
	}
	return all, err
}

// reserve puts the lane of an Instance in force, if there is room, and returns what is placed then. The error
// is a *plan.Refusal where the host has no room for it.
func (p *processes) reserve(ctx context.Context, uid string, i desired.Instance) (plan.Placement, error) {
	ctx, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	refused := p.admits(ctx, i) // before the lanes are held: it may ask other programs
	if p.cluster != nil {
		return p.reserveThere(ctx, uid, i, refused)
	}
	l, _, err := lanes.OpenPatiently(ctx, p.lanes)
	if err != nil {
		return plan.Placement{}, err
	}
	now, err := inForce(l)
	if _, there := now.Lane(i.Name); err == nil && there {
		err = &plan.Refusal{APIVersion: plan.APIVersion, Kind: plan.KindOfRefusal, Lane: i.Name,
			Blocking: []string{"a lane of that name is in force already"}}
	}
	if err == nil {
		err = refused
	}
	if err == nil { // the mark first: what has a record and none is an Instance
		err = desired.WriteFile(p.mark(i.Name), []byte(uid))
	}
	if err == nil {
		err = p.pledge(context.WithoutCancel(ctx), l, i)
		_, none := l.Lane(i.Name)
		_, whole := os.Stat(p.left(i.Name))
		if err != nil && none != nil && whole != nil {
			err = errors.Join(err, p.forget(i.Name))
		} else { // also where it could not be released as a whole: it is settled later
			now = l.Placement
		}
	}
	return now, errors.Join(err, l.Close())
}

// inForce is what is placed, on this host also where that is nothing.
func inForce(l *lanes.Lanes) (plan.Placement, error) {
	now := l.Placement
	if now.Host.Hostname != "" {
		return now, nil
	}
	v, err := l.View()
	now.APIVersion, now.Kind, now.Host = plan.APIVersion, plan.Kind, plan.MachineOf(v.Host)
	return now, err
}

// marked says whether a lane is kept for that Instance: also one that could not be released again.
func (p *processes) marked(name, uid string) bool {
	by, err := os.ReadFile(p.mark(name))
	return err == nil && string(by) == uid
}

// forget takes back that an Instance is reserved.
func (p *processes) forget(name string) error {
	return errors.Join(os.Remove(p.mark(name)), os.RemoveAll(p.record(name)), os.RemoveAll(p.lacks(name)))
}

// admits says whether this host has what an Instance runs, and lets it be who it asks to be; the error is a
// *plan.Refusal where not.
func (p *processes) admits(ctx context.Context, i desired.Instance) error {
	var spec api.InstanceSpec
	err := json.Unmarshal(i.Spec, &spec)
	if err != nil {
		return err
	}
	if err = p.users.may(spec); err == nil {
		err = p.workload(i.Name, spec).possible(ctx, false)
	}
	if ctx.Err() != nil {
		return ctx.Err() // a program did not answer in time, which refuses nothing
	}
	if err != nil {
		return &plan.Refusal{APIVersion: plan.APIVersion, Kind: plan.KindOfRefusal, Lane: i.Name,
			Blocking: []string{err.Error()}}
	}
	return nil
}

// reserve answers what the hub asks: whether this host takes a lane. It answers by what is true on the host
// now, when what was withdrawn has ended: it may be asked for by the same name.
func (a *Agent) reserve(ctx context.Context) error {
	failed := a.settle(ctx)
	for uid, i := range a.server.asked {
		if i.Status.Phase != "" {
			continue
		}
		var err error
		if i.Status, err = a.decide(ctx, uid, i); err == nil {
			err = a.tell(ctx, i)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// decide is what there is to say to one Instance that is to be reserved.
func (a *Agent) decide(ctx context.Context, uid string, i api.Instance) (api.InstanceStatus, error) {
	if r, mine := a.reserved[uid]; mine {
		return r.said, nil // it was not understood
	}
	for _, r := range a.reserved {
		if r.name == i.Name {
			return api.InstanceStatus{Phase: api.Refused,
				Message: "an earlier one of that name has not ended here yet"}, nil
		}
	}
	if a.known(i.Name) { // here it may run without a lane for a moment, as after a reboot
		return api.InstanceStatus{Phase: api.Refused, Message: "an Instance of that name runs here"}, nil
	}
	if hold := a.state().Hold; hold != nil {
		return api.InstanceStatus{Phase: api.Refused,
			Message: "changes are put off at the site: " + hold.Reason}, nil
	}
	o, err := object(a.server.instances[uid])
	if err != nil {
		return i.Status, err
	}
	a.desired.Lock()
	placed, tried := a.processes.reserve(ctx, uid, desired.Instance{Name: i.Name, Spec: o.Spec})
	a.desired.Unlock()
	said, err := answerOf(i, placed, tried)
	if tried == nil && err == nil {
		said.Message, err = a.processes.lacking(i.Name)
	}
	a.o.Log.InfoContext(ctx, "answered the hub", "instance", i.Name, "phase", said.Phase, "why", tried)
	if tried == nil || a.processes.marked(i.Name, uid) {
		a.reserved[uid] = reservation{i.Name, time.Now(), said}
	}
	return said, err
}

// known says whether this host is to run an Instance of that name.
func (a *Agent) known(name string) bool {
	for _, i := range a.state().Instances {
		if i.Name == name {
			return true
		}
	}
	return false
}

// answerOf is what is said of a reservation that was tried.
func answerOf(i api.Instance, placed plan.Placement, tried error) (s api.InstanceStatus, err error) {
	s = api.InstanceStatus{Phase: api.Reserved, Generation: i.Generation}
	if placed.Host.Hostname != "" || tried == nil {
		if s.Placement, err = json.Marshal(placed); err != nil {
			return s, err
		}
	}
	if l, is := placed.Lane(i.Name); is && tried == nil {
		s.CPUs = l.CPUs.String()
	}
	if tried == nil {
		return s, nil
	}
	s.Phase, s.Message = api.Refused, tried.Error()
	if r, is := errors.AsType[*plan.Refusal](tried); is {
		s.Refusal, err = json.Marshal(r)
	}
	return s, err
}

// tell writes the status of an Instance that is as it was read.
func (a *Agent) tell(ctx context.Context, i api.Instance) error {
	_, err := api.WriteStatus(ctx, a.server.resource("instances"), i)
	return err
}

// settle ends reservations that were withdrawn or that nobody has confirmed in time. The hub is told first
// that one ends: it confirms only what is reserved as it was read, so that both cannot happen. Where the hub
// is away one ends anyway, later.
func (a *Agent) settle(ctx context.Context) (failed error) {
	for uid, r := range a.reserved {
		confirmed := a.known(r.name) // whichever it is: what is in the lane is that one's
		i, listed := a.server.asked[uid]
		age := time.Since(r.since)
		switch {
		case confirmed:
			failed = errors.Join(failed, os.RemoveAll(a.processes.mark(r.name)))
			delete(a.reserved, uid)
			continue
		case listed && age < lapse, a.server.heard.Before(r.since) && age < forsaken:
			continue
		case listed:
			i.Status = api.InstanceStatus{Phase: api.Lapsed, Message: "it was not confirmed within " + lapse.String()}
			brief, cancel := context.WithTimeout(ctx, answer)
			err := a.tell(brief, i)
			cancel()
			if err != nil && !apierrors.IsNotFound(err) && age < forsaken {
				a.hear() // it may have been confirmed
				continue
			}
		case a.server.instances[uid] != nil && age < forsaken:
			continue // confirmed, and not taken over yet
		}
		a.desired.Lock()
		err := a.processes.End(ctx, uid, desired.Instance{Name: r.name})
		a.desired.Unlock()
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		failed = errors.Join(failed, os.RemoveAll(a.processes.mark(r.name)))
		delete(a.reserved, uid)
		a.hear() // to say that there is room again
	}
	return failed
}
