// Package plan decides which lane holds what on one host. It is pure: the same host and the same
// lanes give the same Placement, or a Refusal that says why.
package plan

import "isolane.dev/isolane/cpuset"

// Placement says which lane holds what on one host. It is also what `isolane plan -o json` prints.
type Placement struct {
	Lanes        []Lane     `json:"lanes"`
	Housekeeping cpuset.Set `json:"housekeeping"` // never empty
	Optimal      bool       `json:"optimal"`
}

// Lane is what one lane holds.
type Lane struct {
	Name        string     `json:"name"`
	CPUs        cpuset.Set `json:"cpus"`
	Idle        cpuset.Set `json:"idle,omitempty"` // SMT siblings that the lane owns and keeps idle
	MemoryNodes cpuset.Set `json:"memoryNodes"`
	BusyPoll    bool       `json:"busyPoll,omitempty"` // its sockets spin for packets instead of sleeping
	Reasons     []string   `json:"reasons"`
}

// CPUs returns all CPUs that lanes own, also those kept idle.
func (p Placement) CPUs() cpuset.Set {
	var s cpuset.Set
	for _, l := range p.Lanes {
		s = s.Union(l.CPUs).Union(l.Idle)
	}
	return s
}
