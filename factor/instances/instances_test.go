package instances

import (
	"strings"
	"testing"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/lane"
)

func TestLevels(t *testing.T) {
	f, err := Driver{}.Read([]byte("levels: [1, {name: 4, share: 2}]"))
	if err != nil {
		t.Fatal(err)
	}
	for level, want := range map[string]factor.Conditions{
		"1": {Instances: 1, Lane: lane.Spec{CPUs: lane.CPUs{Share: 8}}},
		"4": {Instances: 4, Lane: lane.Spec{CPUs: lane.CPUs{Share: 2}}},
	} {
		c := factor.Conditions{Lane: lane.Spec{CPUs: lane.CPUs{Share: 8}}}
		f.Set(&c, level)
		if c.Instances != want.Instances || c.Lane.CPUs.Share != want.Lane.CPUs.Share {
			t.Errorf("%s: %d instances, share %d", level, c.Instances, c.Lane.CPUs.Share)
		}
	}
	for text, want := range map[string]string{
		"levels: [0]":                    "levels[0] (0): expected a number of instances, 1-253",
		"levels: [2, 254]":               "levels[1] (254): expected a number of instances, 1-253: one address of a /24 each",
		"levels: [many]":                 "levels[0] (many)",
		"levels: [{name: 2, share: 3}]":  "levels[0] (2): share: 3: expected 1-2",
		"levels: [{name: 2, share: 0}]":  "levels[0] (2): share: 0: expected 1-2",
		"levels: [{name: 2, share: -1}]": "levels[0] (2): share: -1",
		"levels: [{name: 2, cpus: 1}]":   "cpus",
	} {
		if _, err := (Driver{}).Read([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
