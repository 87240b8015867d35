package workload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/hub/pods"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
)

// pledged is the lane that isolane-kube has promised to a claim, and when its pod was last seen running.
type pledged struct {
	lane plan.Lane
	at   time.Time
}

// pod is a workload on a host that is a node of a Kubernetes cluster.
type pod struct{ command }

// there returns the pod in the cluster. Its user is set only where it is created.
func (p pod) there() pods.Pod {
	return pods.Pod{Cluster: *p.cluster, Name: p.name, Spec: p.spec, Lanes: p.lanes}
}

func (p pod) possible(ctx context.Context, _ bool) error { return p.ask(ctx, p.there().Possible) }

// ask asks the cluster. The cluster may never answer, and other Instances must be looked after, so after a
// failure to answer it is not asked again for a while.
func (p *Instances) ask(ctx context.Context, do func(context.Context) error) error {
	if time.Since(p.mute) < relook {
		return errMute
	}
	brief, cancel := context.WithTimeout(ctx, Answer)
	defer cancel()
	err := do(brief)
	if brief.Err() != nil && ctx.Err() == nil {
		p.mute, err = time.Now(), errMute
	}
	return err
}

var errMute = fmt.Errorf("the API server of this host's cluster does not answer within %s", Answer)

func (p pod) said() string { return p.there().Said() }

// relook is how often the cluster is asked about a pod that was seen running.
const relook = 10 * time.Second

// runs asks the cluster less often than the agent looks, because the kubelet restarts what ends. It also
// finds the lane that was promised to a pod of an earlier agent.
func (p pod) runs(ctx context.Context, _ []int) (bool, error) {
	s, known := p.seen[p.name]
	if known && time.Since(s.at) < relook {
		return true, nil
	}
	is := false
	err := p.ask(ctx, func(ctx context.Context) (err error) {
		is, err = p.there().Runs(ctx)
		return err
	})
	if !is || err != nil {
		return is, err
	}
	if !known {
		brief, cancel := context.WithTimeout(ctx, Answer)
		defer cancel()
		if s.lane, err = p.there().Promised(brief); err != nil {
			return true, err
		}
	}
	s.at = time.Now()
	p.seen[p.name] = s
	return true, nil
}

func (p pod) begin(ctx context.Context, _ *lanes.Lanes) error {
	at, err := p.asUser()
	if err == nil {
		err = at.Begin(ctx)
	}
	return err
}

// end lets other Instances have their turn while the kubelet ends the pod.
func (p pod) end(ctx context.Context) error {
	delete(p.seen, p.name)
	brief, cancel := context.WithTimeout(ctx, Answer)
	defer cancel()
	err := p.there().End(brief)
	if errors.Is(err, context.DeadlineExceeded) {
		err = api.NotYet(err.Error())
	}
	return err
}

// asUser returns the pod with the user of its tenant.
func (p pod) asUser() (pods.Pod, error) {
	at := p.there()
	if p.spec.Root {
		return at, nil
	}
	user, err := p.users.of(p.dir, p.spec.Tenant)
	at.User = new(int64(user))
	return at, err
}

// reserveThere is Reserve on a host that is a node of a cluster.
func (p *Instances) reserveThere(ctx context.Context, uid string, i desired.Instance, refused error) (
	plan.Placement, error) {
	l, err := lanes.Look(p.lanes)
	if err != nil {
		return plan.Placement{}, err
	}
	now, err := inForce(l)
	if err = cmp.Or(err, refused); err != nil {
		return now, err
	}
	var spec api.InstanceSpec
	if err = json.Unmarshal(i.Spec, &spec); err != nil {
		return now, err
	}
	at, err := pod{command{p, i.Name, spec}}.asUser()
	if err != nil {
		return now, err
	}
	err = errors.Join(desired.WriteFile(p.mark(i.Name), []byte(uid)), p.keep(i))
	var more plan.Lane
	if err == nil {
		more, err = at.Reserve(ctx)
	}
	if err != nil {
		return now, errors.Join(err, p.forget(i.Name))
	}
	p.seen[i.Name] = pledged{lane: more}
	now.Lanes = append(slices.Clone(now.Lanes), more)
	return now, nil
}
