package evidence

import (
	"cmp"
	"fmt"
	"slices"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
)

// Conditions returns the conditions of an environment, by their names for a reader. Command line and versions
// are parts of their own.
func Conditions(e results.Environment) map[string]string {
	return map[string]string{"kernel": e.Kernel, "CPU model": e.CPUModel, "CPUs online": e.Online.String(),
		"clock source": e.Clocksource, "idle driver": e.IdleDriver, "idle governor": e.IdleGov, "boot": e.BootID,
		"hostname": e.Hostname, "memory": quantity.Bytes(e.MemoryBytes).String(),
		"hypervisor": map[bool]string{true: "yes", false: "not seen"}[e.Hypervisor]}
}

// BootsDiffer returns the conditions and settings, besides kernel and command line, that are not the same in
// all boots. It leaves out memory, because what a kernel takes for itself varies.
func BootsDiffer(s results.Session) []string {
	conditions := func(e results.Environment) map[string]string {
		all := Conditions(e)
		for _, name := range []string{"kernel", "boot", "memory"} {
			delete(all, name)
		}
		return all
	}
	var all []string
	add := func(first, now map[string]string) {
		for _, name := range results.Differing(first, now) {
			all = append(all, fmt.Sprintf("%s (%s, then %s)", name, cmp.Or(first[name], "none"),
				cmp.Or(now[name], "none")))
		}
	}
	first := s.Environment
	for _, e := range s.Environments() {
		add(conditions(first), conditions(e))
		add(first.Versions, e.Versions)
		if first.Settings != nil && e.Settings != nil {
			add(first.Settings, e.Settings)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// BootLines says what was booted, for a session that went on after a reboot.
func BootLines(s results.Session) []string {
	var all []string
	for i, e := range s.Boots {
		all = append(all, fmt.Sprintf("boot %d: kernel %s, command line %s", i+1, e.Kernel, e.Cmdline))
	}
	return all
}
