package path

import (
	"encoding/json"
	"strings"
	"testing"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/lane"
)

func driver() Driver {
	return Driver{Names: map[string]string{"bridge": "a bridge", "ovs": "Open vSwitch"}}
}

// A level is a path, or has another name with a path, and may have tags. It is written as it was read.
func TestLevels(t *testing.T) {
	text := `{"levels":["bridge",{"name":"qinq","path":"ovs","vlan":{"outer":100,"inner":7},"words":"tagged"},` +
		`{"name":"ovs","vlan":{"outer":5}}]}`
	f, err := driver().Read([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c := factor.Conditions{VLAN: lane.VLAN{Outer: 9}}
	for level, want := range map[string]factor.Conditions{"bridge": {Path: "bridge"},
		"qinq": {Path: "ovs", VLAN: lane.VLAN{Outer: 100, Inner: 7}}, "ovs": {Path: "ovs", VLAN: lane.VLAN{Outer: 5}}} {
		f.Set(&c, level)
		if c.Path != want.Path || c.VLAN != want.VLAN {
			t.Errorf("%s: %s, %v", level, c.Path, c.VLAN)
		}
	}
	var words []string
	for _, l := range f.Levels() {
		words = append(words, l.Words)
	}
	if got := strings.Join(words, "; "); got != "a bridge; tagged; Open vSwitch, VLAN tag 5" {
		t.Error(got)
	}
	again, err := json.Marshal(f)
	if err != nil || !strings.Contains(string(again), `"vlan":{"inner":7,"outer":100}`) {
		t.Errorf("%s, %v", again, err)
	}
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"levels: [macvlan]":                          "levels[0] (macvlan): path macvlan: unknown: expected one of bridge, ovs",
		"levels: [{name: a, path: b}]":               "levels[0] (a): path b: unknown: expected one of bridge, ovs",
		"levels: [{name: a}]":                        "levels[0] (a): path a: unknown: expected one of bridge, ovs",
		"levels: [{name: ovs, tag: 7}]":              `unknown field "tag"`,
		"levels: [{name: ovs, vlan: {inner: 7}}]":    "vlan.inner: expected vlan.outer too, the tag around it",
		"levels: [{name: ovs, vlan: {outer: 4095}}]": "vlan: expected tags of 1-4094",
		"levels: [{name: ovs, vlan: {outer: -1}}]":   "vlan: expected tags of 1-4094",
	} {
		if _, err := driver().Read([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %q", text, err, want)
		}
	}
}
