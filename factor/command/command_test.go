package command

import (
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/factor"
)

func TestLevels(t *testing.T) {
	f, err := Driver{}.Read([]byte(`levels: [none, {name: some, before: [a], after: [b], needs: [{run: [c], else: no c}], limit: 90s,
		ends: {client: [d, e], application: [f], address: 198.19.0.2, mtu: 1420, overhead: 60}}]`))
	if err != nil {
		t.Fatal(err)
	}
	none, some := factor.Conditions{}, factor.Conditions{After: [][]string{{"z"}}}
	f.Set(&none, "none")
	f.Set(&some, "some")
	if len(none.Before)+len(none.After)+len(none.Needs)+len(none.Ends.Client) > 0 || none.Ends.Address.IsValid() {
		t.Error(none)
	}
	if got := strings.Join(some.Ends.Client, " "); got != "env MTU=1420 d e" || some.Ends.Address.String() != "198.19.0.2" ||
		some.Limit != 90*time.Second || some.Needs[0].Else != "no c" || some.After[0][0] != "b" || some.After[1][0] != "z" {
		t.Error(got, some)
	}
}

// What is impossible is rejected before the host is touched. An MTU is named with its number.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ level, want string }{
		{"before: [a]", "expected both, or none"},
		{"limit: 25h", "limit: 25h0m0s: expected at most 24h0m0s"},
		{"limit: 0s", "limit: 0s: expected at most 24h0m0s, and more than 0"},
		{"needs: [{run: [a]}]", "needs[0]: expected run, a command, and else"},
		{"ends: {client: [a]}", "ends: expected client and application"},
		{"ends: {client: [a], application: [b], address: here}", "here"},
		{"ends: {client: [a], application: [b], mtu: 1420}", "overhead 0: expected"},
		{"ends: {client: [a], application: [b], mtu: 500, overhead: 60}", "expected an MTU of 576 at least"},
		{"ends: {client: [a], application: [b], mtu: 1200, overhead: 60, address: 'fd00::2'}", "mtu 1200, overhead 60: expected an MTU of 1280 at least"},
		{"ends: {client: [a], application: [b], mtu: 1441, overhead: 60}", "1441 with 60 bytes around it makes 1501, and the wire carries 1500: expected 1440 at most"},
	} {
		if _, err := (Driver{}).Read([]byte("levels: [{name: a, " + c.level + "}]")); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.level, err, c.want)
		}
	}
}
