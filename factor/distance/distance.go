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
		string(factor.SameCPU):   "client and application on one CPU",
		string(factor.Siblings):  "on the two hardware threads of a core",
		string(factor.SameL3):    "on two cores below one L3",
		string(factor.OtherL3):   "below two L3 of one NUMA node",
		string(factor.OtherNode): "on two NUMA nodes",
	}))
	return distances{all}, err
}

type distances struct{ factor.Base }

func (distances) Set(c *factor.Conditions, level string) { c.Distance = factor.Distance(level) }
