// Package distance is the factor of what the application's CPUs share with the client's.
package distance

import "isolane.dev/isolane/factor"

// Driver is the factor "distance".
type Driver struct{}

// Name returns "distance".
func (Driver) Name() string { return "distance" }

// Read reads the levels: names of distances.
func (Driver) Read(settings []byte) (factor.Factor, error) {
	all, err := factor.Read(settings, factor.Named(map[string]string{
		"same-cpu":   "client and application on one CPU",
		"siblings":   "on hardware threads of one core",
		"same-l3":    "on different cores below one L3",
		"other-l3":   "below different L3 of one NUMA node",
		"other-node": "on different NUMA nodes",
	}))
	return distances{all}, err
}

type distances struct{ factor.Base }

func (distances) Set(c *factor.Conditions, level string) {
	c.Distance = map[string]factor.Distance{"same-cpu": factor.SameCPU, "siblings": factor.Siblings,
		"same-l3": factor.SameL3, "other-l3": factor.OtherL3, "other-node": factor.OtherNode}[level]
}
