package api

import "testing"

// Nobody at a hub can take a device from a host: by it the host may speak with the hub.
func TestLaneTakesNothingFromHost(t *testing.T) {
	_, err := Lane("a.b", []byte(`{"cpus": {"count": 1}, "network": {"path": "bridge", "device": "eth1", "takeFromHost": true}}`))
	const want = "spec.lane.network.takeFromHost: expected none: a hub takes no device from a host"
	if err == nil || err.Error() != want {
		t.Errorf("%v, expected %s", err, want)
	}
}
