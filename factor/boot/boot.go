// Package boot is the factor of how the machine was booted: its kernel, and words of the kernel's command
// line. Nothing changes that while the machine runs, so the cells of each level are measured together, in a
// boot of their own.
package boot

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/host/cmdline"
	"isolane.dev/isolane/results"
)

// Driver is the factor "boot".
type Driver struct{}

// Name returns "boot".
func (Driver) Name() string { return "boot" }

// Read reads the levels, each with what it requires. One level may require nothing: it is what is booted
// first.
func (Driver) Read(settings []byte) (factor.Factor, error) {
	f := boots{by: map[string]demand{}}
	var err error
	f.Base, err = factor.Read(settings, func(l *factor.Level) error {
		d, rerr := readDemand(*l)
		switch {
		case rerr != nil:
			return rerr
		case d.none() && f.first != "":
			return fmt.Errorf("realtime, release, cmdline, without: expected one of them: only one level may ask "+
				"for nothing, and %s does", f.first)
		case d.none():
			f.first = l.Name
		}
		f.by[l.Name] = d
		if l.Words == "" {
			l.Words = d.String()
		}
		return nil
	})
	return f, err
}

// demand is everything that a level requires.
type demand struct {
	Realtime *bool    `json:"realtime"`
	Release  string   `json:"release"` // a regular expression that matches a part of the kernel's release
	Cmdline  string   `json:"cmdline"` // words that must be on the kernel's command line
	Without  []string `json:"without"` // names of parameters that must not

	release *regexp.Regexp
	words   cmdline.Line
}

func readDemand(l factor.Level) (demand, error) {
	var d demand
	err := l.Read(&d)
	if err != nil {
		return d, err
	}
	if d.release, err = regexp.Compile(d.Release); err != nil {
		return d, fmt.Errorf("release: %w", err)
	}
	d.words = cmdline.Parse(d.Cmdline)
	if again := d.words.Repeated(); len(again) > 0 {
		return d, fmt.Errorf("cmdline: %s is given more than once", again[0].Name)
	}
	for i, name := range d.Without {
		d.Without[i] = strings.ReplaceAll(name, "-", "_")
		if name == "" || strings.ContainsAny(name, "= \t\n\"") {
			return d, fmt.Errorf("without[%d]: %q: expected the name of a parameter", i, name)
		}
		if _, both := d.words.Get(d.Without[i]); both {
			return d, fmt.Errorf("without[%d]: %s is in cmdline too", i, name)
		}
	}
	if strings.TrimSpace(d.Cmdline) != "" && len(d.words) == 0 {
		return d, fmt.Errorf("cmdline: %q: expected parameters", d.Cmdline)
	}
	return d, nil
}

func (d demand) none() bool {
	return d.Realtime == nil && d.Release == "" && len(d.words) == 0 && len(d.Without) == 0
}

// met reports whether the machine was booted as required. Words are compared literally. If a parameter is
// given several times, the occurrence that takes effect counts.
func (d demand) met(e results.Environment) bool {
	release, version, _ := strings.Cut(e.Kernel, " ")
	realtime := strings.Contains(version, "PREEMPT_RT")
	if d.Realtime != nil && *d.Realtime != realtime || !d.release.MatchString(release) {
		return false
	}
	now := cmdline.Parse(e.Cmdline)
	for _, name := range d.words.Names() {
		want, _ := d.words.Get(name)
		if found, ok := now.Get(name); !ok || found != want {
			return false
		}
	}
	return !slices.ContainsFunc(d.Without, func(name string) bool {
		_, there := now.Get(name)
		return there
	})
}

// String says what to boot.
func (d demand) String() string {
	if d.none() {
		return "what is booted when the session begins"
	}
	var parts []string
	switch {
	case d.Realtime == nil:
	case *d.Realtime:
		parts = append(parts, "a real-time kernel (Debian: apt-get install linux-image-rt-"+runtime.GOARCH+")")
	default:
		parts = append(parts, "a kernel that is not real-time")
	}
	if d.Release != "" {
		parts = append(parts, fmt.Sprintf("a release that matches %q", d.Release))
	}
	if len(d.words) > 0 {
		parts = append(parts, strings.Join(strings.Fields(d.Cmdline), " ")+" on the kernel's command line")
	}
	for _, name := range d.Without {
		parts = append(parts, "no "+name+" on the kernel's command line")
	}
	return strings.Join(parts, ", ")
}

type boots struct {
	factor.Base
	by    map[string]demand
	first string // the level that requires nothing; "": none
}

// MarshalJSON writes the levels.
func (b boots) MarshalJSON() ([]byte, error) { return json.Marshal(b.Base) }

// Set changes nothing: either the machine was booted as required, or the cell waits.
func (boots) Set(*factor.Conditions, string) {}

// ErrSeveral says that two levels match what is booted.
var ErrSeveral = errors.New("both are what is booted: say in them what tells one from the other")

// Booted returns the level that matches what a machine was booted with. If none does, it returns the level
// that requires nothing, or "" if there is no such level.
func (b boots) Booted(e results.Environment) (string, error) {
	found := ""
	for _, l := range b.All {
		switch d := b.by[l.Name]; {
		case d.none() || !d.met(e):
		case found != "":
			return "", fmt.Errorf("levels %s and %s: %w", found, l.Name, ErrSeveral)
		default:
			found = l.Name
		}
	}
	return cmp.Or(found, b.first), nil
}

// First returns the level that requires nothing, which is what is booted when a session begins; "": none.
func (b boots) First() string { return b.first }

// Want says what to boot for a level.
func (b boots) Want(level string) string { return b.by[level].String() }
