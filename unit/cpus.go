package unit

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/plan"
)

// CPUs is a systemd unit that asks for CPUs of lanes.
type CPUs struct {
	Unit    string     `json:"unit"`
	Setting string     `json:"setting"` // CPUAffinity or AllowedCPUs
	File    string     `json:"file"`
	CPUs    cpuset.Set `json:"cpus"`  // for which it asks
	Taken   cpuset.Set `json:"taken"` // those of them that belong to lanes
}

// String says what will happen to the unit.
func (u CPUs) String() string {
	what := "it loses CPUs " + u.Taken.String()
	if u.CPUs == u.Taken {
		what = "these are lanes' CPUs, it will not start any more"
		if u.Setting == "AllowedCPUs" { // the kernel gives it the CPUs of the slice above
			what = "these are lanes' CPUs, it gets those of its slice"
		}
	}
	return fmt.Sprintf("%s: %s=%s (%s): %s", u.Unit, u.Setting, u.CPUs, u.File, what)
}

// AskingCPUs returns the units whose CPUAffinity= or AllowedCPUs= names CPUs of lanes (systemd.exec(5),
// systemd.resource-control(5)), sorted by unit, if systemd is process 1. It reads the files of units and
// their drop-ins (systemd.unit(5)), so it also finds units that do not run now.
func AskingCPUs(root fs.FS, p plan.Placement) ([]CPUs, error) {
	if _, err := fs.Stat(root, "run/systemd/system"); err != nil { // sd_booted(3)
		return nil, nil // no systemd
	}
	found := map[[2]string]CPUs{}
	seen := map[string]bool{}
	// The first directory overrides the others. All drop-ins count, in the order of their names.
	dirs := []string{"etc/systemd/system.control", "run/systemd/system.control", "run/systemd/transient",
		"etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system",
		"lib/systemd/system"}
	var dropIns []string
	for _, dir := range dirs {
		entries, err := fs.ReadDir(root, dir)
		if err != nil {
			continue // not every machine has each
		}
		for _, e := range entries {
			name := path.Join(dir, e.Name())
			if strings.HasSuffix(e.Name(), ".d") {
				more, gerr := fs.Glob(root, name+"/*.conf")
				if gerr != nil {
					return nil, gerr
				}
				dropIns = append(dropIns, more...)
			} else if !seen[e.Name()] {
				seen[e.Name()] = true
				readCPUs(root, e.Name(), name, found)
			}
		}
	}
	slices.SortStableFunc(dropIns, func(a, b string) int { return strings.Compare(path.Base(a), path.Base(b)) })
	for _, name := range dropIns {
		unit := strings.TrimSuffix(path.Base(path.Dir(name)), ".d")
		if file := path.Base(name); !seen[unit+"/"+file] {
			seen[unit+"/"+file] = true
			readCPUs(root, unit, name, found)
		}
	}
	var units []CPUs
	for _, u := range found {
		if u.Taken = u.CPUs.Intersection(p.CPUs()); !u.Taken.IsEmpty() {
			units = append(units, u)
		}
	}
	slices.SortFunc(units, func(a, b CPUs) int {
		return strings.Compare(a.Unit+a.Setting, b.Unit+b.Setting)
	})
	return units, nil
}

// readCPUs adds what a file of a unit asks for. An empty value resets the setting; other values add up.
func readCPUs(root fs.FS, unit, name string, found map[[2]string]CPUs) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return // a directory, or gone
	}
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
		setting, value, ok := strings.Cut(line, "=")
		if setting = strings.TrimSpace(setting); !ok || setting != "CPUAffinity" && setting != "AllowedCPUs" {
			continue
		}
		between := func(r rune) bool { return strings.ContainsRune(" \t,\n", r) }
		list := strings.Join(strings.FieldsFunc(value, between), ",")
		cpus, perr := cpuset.Parse(list) // "numa", and what systemd refuses, count as none
		key := [2]string{unit, setting}
		switch u := found[key]; {
		case list == "":
			delete(found, key)
		case strings.HasPrefix(name, "run/systemd/system.control/") && slices.Contains(knob.ManagedUnits(), unit):
			// Isolane's own units, see knob.ManagedUnits
		case perr == nil:
			found[key] = CPUs{Unit: unit, Setting: setting, File: "/" + name, CPUs: u.CPUs.Union(cpus)}
		}
	}
}
