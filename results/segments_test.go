package results_test

import (
	"testing"

	"isolane.dev/isolane/results"
)

func TestUnnamed(t *testing.T) {
	for name, c := range map[string]struct {
		s    results.Segments
		want uint64
	}{
		"all came":                     {results.Segments{Sent: 7, Got: 7}, 0},
		"more came, as of others":      {results.Segments{Sent: 7, Got: 9}, 0},
		"lost, and nobody says so":     {results.Segments{Sent: 7, Again: 2, Got: 5}, 2},
		"somebody says so":             {results.Segments{Sent: 700, Got: 600, Dropped: map[string]uint64{"eth0 sends": 1}}, 0},
		"somebody says so, but of few": {results.Segments{Sent: 7000, Got: 6000, Dropped: map[string]uint64{"eth0 sends": 1, "eth0 received": 1}}, 756},
	} {
		if got := c.s.Unnamed(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
