package audit

import (
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
)

// bootline is the command line with the questions that rules ask of it.
type bootline struct{ host.Bootline }

// cpus returns the CPU list of a parameter other than isolcpus; false where it is missing or wrong.
func (b bootline) cpus(name string, possible cpuset.Set) (cpuset.Set, bool) {
	list, ok := b.Get(name)
	set, err := cpuset.ParseWithin(list, possible)
	return set, ok && err == nil && !set.IsEmpty()
}
