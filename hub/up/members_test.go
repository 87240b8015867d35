package up

import (
	"slices"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for _, name := range []string{"192.0.2.1:6443", "[2001:db8::1]:6443", "hub.example:443"} {
		peer, err := peerURL(name)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := memberOf(peer); err != nil || back != name {
			t.Errorf("%s is %s, and back %s, %v", name, peer, back, err)
		}
	}
	for _, wrong := range []string{"", "192.0.2.1", ":6443", "192.0.2.1:https"} {
		if peer, err := peerURL(wrong); err == nil {
			t.Errorf("%q is %s", wrong, peer)
		}
	}
}

// A hub stays one of several, at its address. A hub that is alone has its store for itself.
func TestShare(t *testing.T) {
	o := Options{Dir: t.TempDir(), Host: "192.0.2.1", Port: 6443}
	const loopback, all = "--listen-peer-urls=https://127.0.0.1:6445", "--listen-peer-urls=https://0.0.0.0:6445"
	for _, step := range []struct {
		shared bool
		listen string
	}{{false, loopback}, {true, all}, {false, all}} {
		o.Shared = step.shared
		if err := o.share(); err != nil {
			t.Fatal(err)
		}
		if flags, err := o.peers(); err != nil || !slices.Contains(flags, step.listen) {
			t.Errorf("shared %t: %v, %v; expected %s", step.shared, flags, err, step.listen)
		}
	}
	o.Port = 7443
	if _, err := o.peers(); err == nil || !strings.Contains(err.Error(), "--address, --port: the other hubs know this one as 192.0.2.1:6443") {
		t.Errorf("at another port: %v", err)
	}
}
