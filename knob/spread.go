package knob

import (
	"path"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// Spreader is the kind of step that starts the spreader: a process that spreads the threads of lanes that the
// kernel does not balance (package runtime/spread), and makes the sockets of lanes poll that ask for it
// (package runtime/busypoll). The program supplies its operation, see change.Daemon.
const Spreader = "spreader"

// spreaderGroup is the group of that process. The tilde keeps it apart from lanes, whose names have none.
const spreaderGroup = "spreader~"

// isSpread reports whether Isolane spreads the threads of a lane: the kernel balances neither the CPUs of
// isolcpus= nor those of isolated partitions. If roles have all CPUs, it spreads only unbound threads.
func (v View) isSpread(l plan.Lane) bool {
	if l.CPUs.Len() == 1 || !l.Spec.Spread() {
		return false
	}
	name := l.Name
	if sharesCPUs(l) {
		name = sharedGroup
	}
	return !l.Spec.Balanced() || l.CPUs.Intersects(v.Host.BootIsolated()) || v.Levels[name] == Isolated
}

// spreaders starts one process for all lanes that need it, on housekeeping CPUs.
func spreaders(v View, p plan.Placement) ([]journal.Step, error) {
	for _, l := range p.Lanes {
		if !v.isSpread(l) && !v.isPolling(l) {
			continue
		}
		root, v2, err := cpusetRoot(v.Host)
		if err != nil {
			return nil, err
		}
		dir := path.Join(root, change.GroupPrefix+spreaderGroup)
		// With cgroup v2 it gets the root's CPUs. CPUs of its own could not become a partition later.
		steps := []journal.Step{{Kind: change.KindCgroup, Target: dir, After: change.Present}}
		if !v2 {
			steps, err = Groups(v.Host, Group{Name: spreaderGroup, CPUs: p.Housekeeping})
		}
		return append(steps, journal.Step{Kind: Spreader, Target: dir, After: change.Running}), err
	}
	return nil, nil
}

// describeBalance says who spreads a lane's threads over its CPUs.
func (v View) describeBalance(l plan.Lane) string {
	switch {
	case l.CPUs.Len() == 1:
		return "one CPU: nothing to balance"
	case !l.Spec.Spread():
		return "not balanced: each thread stays on the CPU that it is bound to"
	case !l.Spec.Balanced():
		return "not balanced: its roles have all CPUs; isolane spreads threads that wait and are not bound, ten " +
			"times a second"
	case v.isSpread(l):
		return "spread by isolane, ten times a second: the kernel balances no isolated CPUs"
	}
	return "balanced by the kernel over its own CPUs"
}
