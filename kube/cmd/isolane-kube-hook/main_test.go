package main

import (
	"strings"
	"testing"
)

func TestOwn(t *testing.T) {
	worker := `{"ociVersion":"1.2.0","pid":7,"annotations":{"io.kubernetes.cri.container-name":"worker"}}`
	for name, c := range map[string]struct {
		shares, state string
		cpus, says    string
		nodes         string
	}{
		"with memory":     {"Memory=0-1 2-3", "", "2-3", "", "0-1"},
		"part of both":    {"Memory=1 1 main=2 worker=3", worker, "3", "", "1"},
		"only memory":     {"Memory=1", worker, "", "container worker: expected one of ", "1"},
		"alone":           {"2-3", "", "2-3", "", ""},
		"by its name":     {"1 main=2 worker=3", worker, "3", "", ""},
		"the rest":        {"1 main=2 rest=3", worker, "1", "", ""},
		"nobody's":        {"main=2", worker, "", "container worker: expected one of main=2", ""},
		"no name":         {"1 main=2", `{"annotations":{}}`, "", "annotation io.kubernetes.cri.container-name", ""},
		"no state":        {"1 main=2", "", "", "EOF", ""},
		"not of a prefix": {"1 work=2", worker, "1", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			cpus, nodes, err := own(strings.Fields(c.shares), strings.NewReader(c.state))
			if nodes != c.nodes || c.says == "" && (err != nil || cpus != c.cpus) ||
				c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%q, memory %q, %v", cpus, nodes, err)
			}
		})
	}
}

// A container that would have memory of other nodes does not begin.
func TestInsideMemory(t *testing.T) {
	const outside = "the container has memory nodes 0-1, expected those of lane edge, "
	for _, c := range []struct{ nodes, status, says string }{
		{"1", "Name:\tx\nMems_allowed:\t2\nMems_allowed_list:\t1\nvoluntary_ctxt_switches:\t0\n", ""},
		{"0-2", "Name:\tx\nMems_allowed_list:\t0-1\n", ""},
		{"1", "Name:\tx\nMems_allowed_list:\t0-1\n", outside + "1: isolane-kube was not there"},
		{"1", "Name:\tx\nMems_allowed_list:\tall\n", "/proc/self/status: Mems_allowed_list: "},
		{"one", "Name:\tx\nMems_allowed_list:\t1\n", "one"},
	} {
		err := insideMemory("edge", c.nodes, c.status)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q of %q: %v, expected %q", c.status, c.nodes, err, c.says)
		}
	}
}
