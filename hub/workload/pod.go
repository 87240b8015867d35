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

// promisedLane is the lane that isolane-kube has promised to a claim, and when its pod was last seen running.
type promisedLane struct {
	lane   plan.Lane
	seenAt time.Time
}

// pod is a workload on a host that is a node of a Kubernetes cluster.
type pod struct{ command }

// clusterPod returns the pod in the cluster. Its user is set only where it is created.
func (p pod) clusterPod() pods.Pod {
	return pods.Pod{Cluster: *p.cluster, Name: p.name, Spec: p.spec, Lanes: p.lanes}
}

func (p pod) checkPossible(ctx context.Context, _ bool) error {
	return p.askCluster(ctx, p.clusterPod().Possible)
}

// askCluster asks the cluster. The cluster may never answer, and other Instances must be looked after, so
// after a failure to answer it is not asked again for a while.
func (p *Instances) askCluster(ctx context.Context, do func(context.Context) error) error {
	if time.Since(p.clusterFailedAt) < podCheckInterval {
		return errClusterSilent
	}
	brief, cancel := context.WithTimeout(ctx, Answer)
	defer cancel()
	err := do(brief)
	if brief.Err() != nil && ctx.Err() == nil {
		p.clusterFailedAt, err = time.Now(), errClusterSilent
	}
	return err
}

var errClusterSilent = fmt.Errorf("the API server of this host's cluster does not answer within %s", Answer)

func (p pod) whereOutput() string { return p.clusterPod().Said() }

// podCheckInterval is how often the cluster is asked about a pod that was seen running.
const podCheckInterval = 10 * time.Second

// isRunning asks the cluster less often than the agent looks, because the kubelet restarts what ends. It also
// finds the lane that was promised to a pod of an earlier agent.
func (p pod) isRunning(ctx context.Context, _ []int) (bool, error) {
	s, known := p.inCluster[p.name]
	if known && time.Since(s.seenAt) < podCheckInterval {
		return true, nil
	}
	is := false
	err := p.askCluster(ctx, func(ctx context.Context) (err error) {
		is, err = p.clusterPod().Runs(ctx)
		return err
	})
	if !is || err != nil {
		return is, err
	}
	if !known {
		brief, cancel := context.WithTimeout(ctx, Answer)
		defer cancel()
		if s.lane, err = p.clusterPod().Promised(brief); err != nil {
			return true, err
		}
	}
	s.seenAt = time.Now()
	p.inCluster[p.name] = s
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
	delete(p.inCluster, p.name)
	brief, cancel := context.WithTimeout(ctx, Answer)
	defer cancel()
	err := p.clusterPod().End(brief)
	if errors.Is(err, context.DeadlineExceeded) {
		err = api.NotYet(err.Error())
	}
	return err
}

// asUser returns the pod with the user of its tenant.
func (p pod) asUser() (pods.Pod, error) {
	at := p.clusterPod()
	if p.spec.Root {
		return at, nil
	}
	user, err := p.users.userOf(p.dir, p.spec.Tenant)
	at.User = new(int64(user))
	return at, err
}

// reserveInCluster is Reserve on a host that is a node of a cluster.
func (p *Instances) reserveInCluster(ctx context.Context, uid string, i desired.Instance, refused error) (
	plan.Placement, error) {
	l, err := lanes.Look(p.lanes)
	if err != nil {
		return plan.Placement{}, err
	}
	now, err := placementInForce(l)
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
	err = errors.Join(desired.WriteFile(p.markFile(i.Name), []byte(uid)), p.writeRecord(i))
	var more plan.Lane
	if err == nil {
		more, err = at.Reserve(ctx)
	}
	if err != nil {
		return now, errors.Join(err, p.forget(i.Name))
	}
	p.inCluster[i.Name] = promisedLane{lane: more}
	now.Lanes = append(slices.Clone(now.Lanes), more)
	return now, nil
}
