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
	}{
		"alone":           {"2-3", "", "2-3", ""},
		"by its name":     {"1 main=2 worker=3", worker, "3", ""},
		"the rest":        {"1 main=2 rest=3", worker, "1", ""},
		"nobody's":        {"main=2", worker, "", "container worker: expected one of main=2"},
		"no name":         {"1 main=2", `{"annotations":{}}`, "", "annotation io.kubernetes.cri.container-name"},
		"no state":        {"1 main=2", "", "", "EOF"},
		"not of a prefix": {"1 work=2", worker, "1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			cpus, err := own(strings.Fields(c.shares), strings.NewReader(c.state))
			if c.says == "" && (err != nil || cpus != c.cpus) ||
				c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%q, %v", cpus, err)
			}
		})
	}
}
