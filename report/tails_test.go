package report

import (
	"testing"

	"isolane.dev/isolane/results"
)

func TestMetName(t *testing.T) {
	for want, m := range map[string]results.Met{
		"stress-ng":               {Kind: "task", Name: "stress-ng"},
		"local timer (client)":    {Kind: "tick", Name: "local timer", Side: "client"},
		"NET_RX softirq (client)": {Kind: "softirq", Name: "NET_RX", Side: "client"},
		"reschedule IPI":          {Kind: "ipi", Name: "reschedule"},
		"application wake-up":     {Kind: "wake-up", Name: "application"},
		"steal":                   {Kind: "steal", Name: "hypervisor"},
	} {
		if got := metName(m); got != want {
			t.Errorf("%+v: %q, want %q", m, got, want)
		}
	}
}
