package knob

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
)

// Unrecorded is a host with lanes whose record is lost, so the values before them are unknown. What lanes
// have changed gets the kernel's default, which each knob knows. A value that lanes do not set was set by
// somebody else, and stays.
type Unrecorded struct {
	Root  fs.FS
	Host  host.Host  // as it is now
	Lanes cpuset.Set // the CPUs of the lanes, see LanesOf

	Steps   []journal.Step // to the defaults, added by the last function of Defaults
	Unknown []Unknown
}

// Unknown is a setting that lanes may have changed, and whose earlier value only the administrator knows.
type Unknown struct{ Name, Note string }

// Defaults returns one function per knob, which adds the steps to the kernel's defaults. Call them in this
// order, each after the steps of the one before are done.
func Defaults() []func(*Unrecorded) error {
	var all []func(*Unrecorded) error
	for _, k := range slices.Backward(knobs()) {
		if k.defaults != nil {
			all = append(all, k.defaults)
		}
	}
	return all
}

// LanesOf returns the CPUs of Isolane's cgroups, except for the housekeeping group.
func LanesOf(root fs.FS, groups []string) (cpuset.Set, error) {
	var all cpuset.Set
	for _, dir := range groups {
		if path.Base(dir) == change.GroupPrefix+housekeeping {
			continue
		}
		text, err := fs.ReadFile(root, path.Join(dir, "cpuset.cpus")[1:])
		if errors.Is(err, fs.ErrNotExist) { // a cgroup of the memory hierarchy
			continue
		}
		if err != nil {
			return all, err
		}
		set, err := cpuset.Parse(trim(text))
		if err != nil {
			return all, fmt.Errorf("%s/cpuset.cpus: %w", dir, err)
		}
		all = all.Union(set)
	}
	return all, nil
}

// withoutLanes returns the CPUs that lanes leave to others.
func (u *Unrecorded) withoutLanes(cpus cpuset.Set) cpuset.Set { return cpus.Difference(u.Lanes) }

// possibleCPUs returns all CPUs, offline ones included.
func (u *Unrecorded) possibleCPUs() cpuset.Set {
	var all cpuset.Set
	for _, c := range u.Host.CPUs {
		all = all.Union(cpuset.Of(c.ID))
	}
	return all
}

// ticklessCPUs returns the CPUs of nohz_full=.
func (u *Unrecorded) ticklessCPUs() cpuset.Set {
	if u.Host.Kernel.NohzFull == nil {
		return cpuset.Set{}
	}
	return *u.Host.Kernel.NohzFull
}

// resetMask sets a cpumask to its default.
func (u *Unrecorded) resetMask(name string, to cpuset.Set) {
	if _, text, ok := readMask(u.Root, name); ok {
		u.addStep(fileStep("/"+name, padMask(to.Mask(), text)))
	}
}

func (u *Unrecorded) addStep(s journal.Step) { u.Steps = append(u.Steps, s) }

func (u *Unrecorded) addUnknown(name, note string) {
	u.Unknown = append(u.Unknown, Unknown{name, note})
}

// resetSysctl sets a file to usual, its default, if lanes have set it to ours; with ours "" always.
func (u *Unrecorded) resetSysctl(name, ours, usual string) {
	if text, err := fs.ReadFile(u.Root, name); err == nil && (ours == "" || host.Chosen(trim(text)) == ours) {
		u.addStep(fileStep("/"+name, usual))
	}
}
