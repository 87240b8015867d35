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

// Unrecorded is a host with lanes of which no record is left: what was there before them is not known. What
// they changed gets the kernel's default, which each knob knows. What is not as lanes set it was set by
// somebody else, and stays.
type Unrecorded struct {
	Root  fs.FS
	Host  host.Host  // as it is
	Lanes cpuset.Set // the CPUs of the lanes, see LanesOf

	Steps   []journal.Step // to the defaults, of the last of Defaults
	Unknown []Unknown
}

// Unknown is a setting that lanes may have changed, and whose value before only the administrator knows.
type Unknown struct{ Name, Note string }

// Defaults are functions, one of each knob, that add the steps to the kernel's defaults. They are called in
// this order, each when the steps of the one before are done.
func Defaults() []func(*Unrecorded) error {
	var all []func(*Unrecorded) error
	for _, k := range slices.Backward(knobs()) {
		if k.defaults != nil {
			all = append(all, k.defaults)
		}
	}
	return all
}

// LanesOf are the CPUs of Isolane's cgroups, but for that of all others.
func LanesOf(root fs.FS, groups []string) (cpuset.Set, error) {
	var all cpuset.Set
	for _, dir := range groups {
		if path.Base(dir) == change.GroupPrefix+housekeeping {
			continue
		}
		text, err := fs.ReadFile(root, path.Join(dir, "cpuset.cpus")[1:])
		if errors.Is(err, fs.ErrNotExist) { // of the memory hierarchy
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

// without are CPUs without those of the lanes: what lanes leave of them to others.
func (u *Unrecorded) without(cpus cpuset.Set) cpuset.Set { return cpus.Difference(u.Lanes) }

// possible are all CPUs, those that are offline too.
func (u *Unrecorded) possible() cpuset.Set {
	var all cpuset.Set
	for _, c := range u.Host.CPUs {
		all = all.Union(cpuset.Of(c.ID))
	}
	return all
}

// tickless are the CPUs of nohz_full=.
func (u *Unrecorded) tickless() cpuset.Set {
	if u.Host.Kernel.NohzFull == nil {
		return cpuset.Set{}
	}
	return *u.Host.Kernel.NohzFull
}

// mask gives a cpumask its default.
func (u *Unrecorded) mask(name string, to cpuset.Set) {
	if _, text, ok := readMask(u.Root, name); ok {
		u.set(file("/"+name, widen(to.Mask(), text)))
	}
}

func (u *Unrecorded) set(s journal.Step) { u.Steps = append(u.Steps, s) }

func (u *Unrecorded) unknown(name, note string) { u.Unknown = append(u.Unknown, Unknown{name, note}) }

// resetSysctl gives a file its default, where it is as lanes want it; ours "": whatever it is.
func (u *Unrecorded) resetSysctl(name, ours, usual string) {
	if text, err := fs.ReadFile(u.Root, name); err == nil && (ours == "" || host.Chosen(trim(text)) == ours) {
		u.set(file("/"+name, usual))
	}
}
