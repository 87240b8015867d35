// Package placement is the factor of where the application runs: in a lane, or with less than that.
package placement

import "isolane.dev/isolane/factor"

// Driver is the factor "placement".
type Driver struct{}

// Name returns "placement".
func (Driver) Name() string { return "placement" }

// Read reads the levels: floating, awake, pinned and lane.
func (Driver) Read(settings []byte) (factor.Factor, error) {
	all, err := factor.Read(settings, factor.Named(map[string]string{
		"floating": "anywhere on the platform's CPUs",
		"awake":    "as floating, and these CPUs do not halt: what halting does to the floating ones is left out",
		"pinned":   "a cpuset of its own, and nothing else: what CPU managers do",
		"lane":     "all that Isolane does",
	}))
	return placements{all}, err
}

type placements struct{ factor.Base }

func (placements) Set(c *factor.Conditions, level string) {
	c.Place = map[string]factor.Place{"floating": factor.Anywhere, "awake": factor.Awake,
		"pinned": factor.InCpuset,
		"lane":   factor.InLane}[level]
}
