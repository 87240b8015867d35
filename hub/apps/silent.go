package apps

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"isolane.dev/isolane/hub/api"
)

// leaseCheckInterval is how often the hub looks which hosts are there. returnTime is how long hosts have to
// report after the hub itself was away: they notice its return within ten seconds.
const (
	leaseCheckInterval = 30 * time.Second
	returnTime         = 20 * time.Second
)

// lastSeen returns when a host was last there, and whether its Lease has expired since.
func lastSeen(lease *coordinationv1.Lease) (at time.Time, is bool) {
	if lease.Spec.LeaseDurationSeconds == nil {
		return at, true
	}
	at = renewedAt(lease)
	return at, time.Since(at) > time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second
}

// watchLeases looks which hosts are there, until the context ends.
func (c *Controller) watchLeases(ctx context.Context) {
	for ticker := time.NewTicker(leaseCheckInterval); ; {
		select {
		case <-ctx.Done():
			ticker.Stop()
			return
		case <-ticker.C:
			c.checkLeases(ctx)
		}
	}
}

// checkLeases finds the hosts whose Leases have expired, and wakes the Apps of hosts that have gone or come
// back: no change of an object tells that.
func (c *Controller) checkLeases(ctx context.Context) {
	leases, err := c.Core.CoordinationV1().Leases("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		if c.leasesSince = (time.Time{}); ctx.Err() == nil {
			c.Log.WarnContext(ctx, "which hosts are there is not known", "error", err)
		}
		return
	}
	if c.leasesSince.IsZero() {
		c.leasesSince = time.Now()
	}
	hosts, now := 0, map[string]time.Time{}
	for n := range leases.Items {
		lease := &leases.Items[n]
		if lease.Namespace != api.Namespace(lease.Name) {
			continue
		}
		hosts++
		at, is := lastSeen(lease)
		_, known := c.expired[lease.Name]
		if is && (known || time.Since(c.leasesSince) > returnTime) {
			now[lease.Name] = at
		}
	}
	if c.Count != nil {
		c.Count(ctx, hosts)
	}
	c.lock.Lock()
	was := c.expired
	c.expired = now
	c.lock.Unlock()
	other := func(host string) bool {
		_, before := was[host]
		_, after := now[host]
		return before != after
	}
	for _, object := range c.apps.List() {
		if app, is := object.(*unstructured.Unstructured); is {
			hosts, _, _ := unstructured.NestedStringSlice(app.Object, "status", "hosts")
			if slices.ContainsFunc(hosts, other) {
				c.queue.Add(nameOfObject(app))
			}
		}
	}
}

func lastThere(host string, at time.Time) string {
	return host + " (last there at " + at.UTC().Format(time.RFC3339) + ")"
}

// waitsFor names the hosts of Instances that are to end, with why that takes so long where it is known.
func (c *Controller) waitsFor(has []api.Instance) string {
	c.lock.Lock()
	defer c.lock.Unlock()
	var all []string
	for _, i := range has {
		host := hostOf(i)
		if at, silent := c.expired[host]; silent {
			host = lastThere(host, at)
		} else if i.Status.Brief != "" {
			host += " (" + i.Status.Brief + ")"
		}
		all = append(all, host)
	}
	return strings.Join(slices.Sorted(slices.Values(all)), ", ")
}

// statusOf sums up the Instances of an App. An Instance whose host is away, or that runs an earlier spec of
// the App, does not count as running.
func (c *Controller) statusOf(app api.App, live []api.Instance) api.AppStatus {
	s := api.AppStatus{Phase: Starting, Generation: app.Generation}
	gone := map[string]string{}
	c.lock.Lock()
	defer c.lock.Unlock()
	for _, i := range live {
		host := hostOf(i)
		s.Hosts = append(s.Hosts, host)
		at, silent := c.expired[host]
		switch {
		case silent:
			gone[host] = lastThere(host, at)
		case i.Status.Phase == Running && i.Status.Generation == i.Generation && i.DeletionTimestamp == nil:
			s.Running++
			if i.Status.Brief != "" {
				s.Message = "host " + host + ": " + i.Status.Brief
			}
		case i.Status.Message != "":
			s.Message = "host " + host + ": " + i.Status.Phase
			if i.Status.Brief != "" {
				s.Message += ": " + i.Status.Brief
			}
		}
	}
	if len(gone) > 0 {
		var hosts []string
		for _, host := range slices.Sorted(maps.Keys(gone)) {
			hosts = append(hosts, gone[host])
		}
		s.Message = "what runs is not known of hosts that say nothing: " + strings.Join(hosts, ", ")
	}
	if s.Running == len(live) && len(live) >= app.Spec.Replicas {
		s.Phase = Running
	}
	return s
}
