package main

import (
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	for name, c := range map[string]struct {
		args       []string
		out, fails string
	}{
		"help":             {[]string{"--help"}, "Usage: isolane-kube node [flags]", ""},
		"help of node":     {[]string{"node", "-h"}, "directory of the kubelet", ""},
		"nothing":          {nil, "", "expected isolane-kube node or leave"},
		"help of leave":    {[]string{"leave", "--help"}, "isolane-kube leave [--kubelet directory] [--cdi directory]", ""},
		"leave a node":     {[]string{"leave", "n0"}, "", `expected flags only, found ["n0"]`},
		"another command":  {[]string{"nodes"}, "", "isolane-kube --help lists them"},
		"another flag":     {[]string{"node", "--nod=n0"}, "", "flag provided but not defined: -nod"},
		"no node":          {[]string{"node", "--node="}, "", "--node: expected the name of this node"},
		"CPUs of no list":  {[]string{"node", "--node=n0", "--cpus=one"}, "", "--cpus: "},
		"CPUs not there":   {[]string{"node", "--node=n0", "--cpus=0,4095"}, "", "--cpus: 4095: expected CPUs that are online, of 0"},
		"no configuration": {[]string{"node", "--node=n0", "--cpus=0", "--kubeconfig=/nowhere"}, "", "--kubeconfig: "},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			err := run(t.Context(), c.args, &out)
			if !strings.Contains(out.String(), c.out) || (c.out == "") != (out.String() == "") {
				t.Errorf("%q", out.String())
			}
			if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
				t.Errorf("%v: expected %q", err, c.fails)
			}
		})
	}
}
