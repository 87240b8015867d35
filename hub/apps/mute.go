package apps

import (
	"context"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/place"
)

// Each host that does not answer costs two seconds, in which no App is looked after. So for a while no App
// asks that host again. If several hosts of a site in a row do not answer, the link to the site is down, and
// no host of the site is asked for a while. That while is shorter, so that another host of the site is asked
// next.
const (
	silentHostsLimit = 3 // hosts of a site in a row
	muteHost         = time.Minute
	muteSite         = 15 * time.Second
	leasePause       = 5 * time.Second // between looks whether such a host has sent a sign of life
)

// mutes has the hosts and sites that have not answered, for whichever App they were asked.
type mutes struct {
	hosts map[string]mute
	sites map[string]int       // in a row
	until map[string]time.Time // by site
}

// mute is a host that has not answered.
type mute struct {
	site             string
	since, leaseRead time.Time // when it did not answer, and when its Lease was last read
}

func newMutes() mutes {
	return mutes{map[string]mute{}, map[string]int{}, map[string]time.Time{}}
}

// recordSilent records that a host has not answered.
func (m mutes) recordSilent(host, site string, now time.Time) {
	m.hosts[host] = mute{site, now, now}
	if m.sites[site]++; m.sites[site] >= silentHostsLimit {
		m.until[site] = now.Add(muteSite)
	}
}

// recordAnswer records that a host has answered or sent a sign of life.
func (m mutes) recordAnswer(host, site string) {
	delete(m.hosts, host)
	delete(m.sites, site)
	delete(m.until, site)
}

// excludeFrom excludes mute hosts from the choice.
func (m mutes) excludeFrom(w *place.Where, now time.Time) {
	for host, was := range m.hosts {
		if now.Sub(was.since) >= muteHost {
			delete(m.hosts, host)
			continue
		}
		w.Said[host] = place.Verdict{Kind: place.Silent,
			Why: "it did not answer at " + was.since.UTC().Format(time.TimeOnly)}
	}
	w.Mute = map[string]string{}
	for site, until := range m.until {
		if now.Before(until) {
			w.Mute[site] = "hosts of its site did not answer: not asked before " + until.UTC().Format(time.TimeOnly)
		}
	}
}

// unmuteAlive looks whether mute hosts have since sent a sign of life.
func (c *Controller) unmuteAlive(ctx context.Context, now time.Time) {
	for _, host := range slices.Sorted(maps.Keys(c.mutes.hosts)) {
		was := c.mutes.hosts[host]
		if now.Sub(was.leaseRead) < leasePause {
			continue
		}
		was.leaseRead = now
		c.mutes.hosts[host] = was
		lease, err := c.Core.CoordinationV1().Leases(api.Namespace(host)).Get(ctx, host, metav1.GetOptions{})
		if err == nil && !renewedAt(lease).Before(was.since.Truncate(time.Second)) { // Leases have whole seconds
			c.mutes.recordAnswer(host, was.site)
		}
	}
}

// siteOf returns the site of a host.
func (c *Controller) siteOf(host string) string {
	object, _, _ := c.hosts.GetByKey(api.Namespace(host) + "/" + host)
	if u, is := object.(*unstructured.Unstructured); is {
		site, _, _ := unstructured.NestedString(u.Object, "spec", "site")
		return site
	}
	return ""
}
