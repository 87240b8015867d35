package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/hub/sites"
)

// site is a network namespace on this machine, with one cable to the hub.
const (
	site   = "isolane-test-site"
	cable  = "isl-test-hub" // the hub's end
	hubAt  = "198.18.43.1"
	siteAt = "198.18.43.2"
)

// wire makes the site and its cable.
func wire(t *testing.T) {
	t.Helper()
	ip := func(args string) {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %s%v", args, out, err)
		}
	}
	ip("netns add " + site)
	t.Cleanup(func() { ip("netns del " + site) }) // and the cable with it
	ip("link add " + cable + " type veth peer name eth0 netns " + site)
	ip("addr add " + hubAt + "/24 dev " + cable)
	ip("link set " + cable + " up")
	ip("-n " + site + " addr add " + siteAt + "/24 dev eth0")
	ip("-n " + site + " link set eth0 up")
	ip("-n " + site + " link set lo up")
}

// pull pulls the cable, "down", or puts it back, "up".
func pull(t *testing.T, how string) time.Time {
	t.Helper()
	if out, err := exec.Command("ip", "link", "set", cable, how).CombinedOutput(); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	return time.Now()
}

// withSite returns a hub with a host at a site of its own.
func withSite(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{bench: newBench(t)}
	wire(t)
	f.address, f.netns = hubAt, site
	f.begin(t)
	return f
}

// A cable that is pulled says nothing to either end: connections stay open, and no packet is refused. The host goes
// on alone, and what was declared meanwhile is done once the cable is back.
func TestCablePulled(t *testing.T) {
	long(t)
	f := withSite(t)
	join := append(slices.Clone(f.join), "--dir", f.file("agent"), "--name", "one")
	if out, err := f.command(join...).CombinedOutput(); err != nil {
		t.Fatalf("join: %s%v", out, err)
	}
	f.agent(t)
	busy := map[string]any{"lane": map[string]any{"cpus": map[string]any{"count": 1}},
		"command": []any{"sh", "-c", "while :; do :; done & while :; do :; done & wait"}}
	f.make(t, "apps", "App", "default", "first", busy)
	f.app(t, "default", "first", "Running")
	const first = "default.first"

	pull(t, "down")
	after := startedAgain(t, first)
	f.make(t, "apps", "App", "default", "second", busy)
	if err := f.resource("apps", "default").Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.app(t, "default", "second", "Pending")
	if now := running(t, first); !slices.Equal(now, after) {
		t.Errorf("processes %v while the cable was pulled, expected still %v", now, after)
	}

	back := pull(t, "up")
	f.app(t, "default", "second", "Running")
	t.Logf("what was declared meanwhile runs %.1f s after the cable is back", time.Since(back).Seconds())
	f.gone(t, "first", func() error {
		_, err := f.resource("apps", "default").Get(t.Context(), "first", metav1.GetOptions{})
		return err
	})
	if now := running(t, first); len(now) > 0 {
		t.Errorf("processes %v, expected none", now)
	}
	f.deleteApp(t, "second")
}

// One of three hubs, which controls, is at the site when its cable is pulled. The two others take writes, and one of
// them controls. When the cable is back, no acknowledged write is missing at any of them.
func TestHubCutOff(t *testing.T) {
	long(t)
	hosttest.Need(t, hosttest.Root)
	b := withoutHost(t)
	wire(t)
	b.netns, b.away = site, folder(0)
	h := newThree(t, b)
	controls := func(at string, is bool) func() error {
		return func() error {
			lease, err := h.of(t, 1).CoordinationV1().Leases(sites.Own).Get(t.Context(), "isolane-hub", metav1.GetOptions{})
			if err == nil && (*lease.Spec.HolderIdentity == at) != is {
				err = fmt.Errorf("%s does", *lease.Spec.HolderIdentity)
			}
			return err
		}
	}
	until(t, "the first hub controls", controls(h.address(0), true))
	w, said, stop := h.writing(t)
	<-said
	from := pull(t, "down")
	t.Logf("the next write was acknowledged after %s", next(t, said, from))
	until(t, "another hub controls", controls(h.address(0), false))
	t.Logf("another hub controls after %s", time.Since(from))
	from = pull(t, "up")
	until(t, "it takes writes again", func() error {
		_, err := h.of(t, 0).CoreV1().ConfigMaps("default").Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "again-"}}, metav1.CreateOptions{})
		return err
	})
	t.Logf("it takes writes again %s after the cable is back", time.Since(from))
	stop()
	for n, hub := range w.hubs {
		if lost := w.lost(t, hub); len(lost) > 0 {
			t.Errorf("hub %d has lost %v", n, lost)
		}
	}
}
