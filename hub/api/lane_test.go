package api

import "testing"

// Nobody at a hub can take a device from a host, by which that may speak with the hub, or have a card trust an App.
func TestLaneTakesNothingFromHost(t *testing.T) {
	for _, c := range []struct{ network, want string }{
		{`"path": "bridge", "takeFromHost": true`, "takeFromHost: expected none: a hub takes no device from a host"},
		{`"path": "sriov", "vf": {"trust": true}`, "vf.trust: expected none: with it an App may hear frames of others"},
	} {
		_, err := Lane("a.b", []byte(`{"cpus": {"count": 1}, "network": {"device": "eth1", `+c.network+`}}`))
		if want := "spec.lane.network." + c.want; err == nil || err.Error() != want {
			t.Errorf("%v, expected %s", err, want)
		}
	}
}
