package agent

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/hub/workload"
	"isolane.dev/isolane/plan"
)

// reservation is a lane in force in which nothing runs yet: the hub has asked whether this host takes it, and
// has not confirmed it. It is also on disk, so that the next agent knows it.
type reservation struct {
	name  string
	since time.Time
	said  api.InstanceStatus // to the hub; zero if an earlier agent reserved it
}

// confirmTimeout is how long a reservation waits for the hub to confirm it. hubAwayTimeout is how long it is
// kept if the hub cannot be told that it ends.
const (
	confirmTimeout = 30 * time.Second
	hubAwayTimeout = 5 * time.Minute
)

// recall loads the reservations that the last agent has left.
func (a *Agent) recall() error {
	left, err := a.instances.Reserved()
	a.reserved = map[string]reservation{}
	for uid, name := range left {
		a.reserved[uid] = reservation{name: name, since: time.Now()}
	}
	return err
}

// reserve answers the hub's question whether this host takes a lane, by what is true on the host now. It
// first ends what the hub has withdrawn, because the hub may ask for the same name again.
func (a *Agent) reserve(ctx context.Context) error {
	failed := a.settle(ctx)
	for uid, i := range a.server.asked {
		if i.Status.Phase != "" {
			continue
		}
		var err error
		if i.Status, err = a.decide(ctx, uid, i); err == nil {
			err = a.writeStatus(ctx, i)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// decide returns the answer to one Instance that is to be reserved.
func (a *Agent) decide(ctx context.Context, uid string, i api.Instance) (api.InstanceStatus, error) {
	if r, mine := a.reserved[uid]; mine {
		return r.said, nil // the hub did not get the answer
	}
	for _, r := range a.reserved {
		if r.name == i.Name {
			return api.InstanceStatus{Phase: api.Refused,
				Message: "an earlier one of that name has not ended here yet"}, nil
		}
	}
	if a.hasInstance(i.Name) { // it may run here without a lane for a moment, as after a reboot
		return api.InstanceStatus{Phase: api.Refused, Message: "an Instance of that name runs here"}, nil
	}
	if hold := a.state().Hold; hold != nil {
		return api.InstanceStatus{Phase: api.Refused, Message: putOff + ": " + hold.Reason}, nil
	}
	o, err := object(a.server.instances[uid])
	if err != nil {
		return i.Status, err
	}
	a.desired.Lock()
	placed, tried := a.instances.Reserve(ctx, uid, desired.Instance{Name: i.Name, Spec: o.Spec})
	a.desired.Unlock()
	said, err := answerOf(i, placed, tried)
	if tried == nil && err == nil {
		said.Message = a.instances.Lacks(i.Name)
	}
	a.o.Log.InfoContext(ctx, "answered the hub", "instance", i.Name, "phase", said.Phase, "why", tried)
	if tried == nil || a.instances.Marked(i.Name, uid) {
		a.reserved[uid] = reservation{i.Name, time.Now(), said}
	}
	return said, err
}

// hasInstance reports whether this host is to run an Instance of that name.
func (a *Agent) hasInstance(name string) bool {
	for _, i := range a.state().Instances {
		if i.Name == name {
			return true
		}
	}
	return false
}

// answerOf returns the status that tells the hub how an attempt to reserve went.
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

// writeStatus writes the status of an Instance if the hub still has it as it was read.
func (a *Agent) writeStatus(ctx context.Context, i api.Instance) error {
	_, err := api.WriteStatus(ctx, a.server.resource("instances"), i)
	return err
}

// settle ends reservations that the hub has withdrawn, or has not confirmed in time. It tells the hub first
// that a reservation ends: the hub confirms one only as it was read, so it cannot be both confirmed and
// ended. If the hub is away, a reservation ends anyway, later.
func (a *Agent) settle(ctx context.Context) (failed error) {
	for uid, r := range a.reserved {
		confirmed := a.hasInstance(r.name) // by any Instance of that name, which then owns the lane
		i, listed := a.server.asked[uid]
		age := time.Since(r.since)
		switch {
		case confirmed:
			failed = errors.Join(failed, a.instances.Unmark(r.name))
			delete(a.reserved, uid)
			continue
		case listed && age < confirmTimeout, a.server.heard.Before(r.since) && age < hubAwayTimeout:
			continue
		case listed:
			i.Status = api.InstanceStatus{Phase: api.Lapsed,
				Message: "it was not confirmed within " + confirmTimeout.String()}
			brief, cancel := context.WithTimeout(ctx, workload.Answer)
			err := a.writeStatus(brief, i)
			cancel()
			if err != nil && !apierrors.IsNotFound(err) && age < hubAwayTimeout {
				a.talkNow() // it may have been confirmed
				continue
			}
		case a.server.instances[uid] != nil && age < hubAwayTimeout:
			continue // confirmed, and not taken over yet
		}
		a.desired.Lock()
		err := a.instances.End(ctx, uid, desired.Instance{Name: r.name})
		a.desired.Unlock()
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		failed = errors.Join(failed, a.instances.Unmark(r.name))
		delete(a.reserved, uid)
		a.talkNow() // to report that there is room again
	}
	return failed
}
