// Package factor holds what a scenario sees of a factor: a condition that differs between its cells. A folder
// below is a driver, which reads its own part of a scenario.
package factor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/noise"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/runtime/guest"
)

// Driver is a kind of factor.
type Driver interface {
	Name() string // in a scenario
	// Read reads what the scenario says of a factor beside its name, kind and where, as YAML. Unknown fields are
	// errors, and an error names its field.
	Read(settings []byte) (Factor, error)
}

// Factor is one of a scenario. In JSON it is its settings.
type Factor interface {
	Levels() []results.Level
	// Quiet is the level at which nothing disturbs the application, of a factor that is there to disturb it. "":
	// it is not.
	Quiet() string
	// Outside says that it changes nothing of the application and its way, so that it can also be varied around
	// a lane in force.
	Outside() bool
	// Programs are those on the host that it needs; each is a package of that name in Debian, unless the factor
	// is a probe.Packaged.
	Programs(level string) []string
	Set(c *Conditions, level string)
}

// PerBoot is a Factor that only a boot of the machine changes. Its Set changes nothing: a cell waits until
// that is booted which it wants.
type PerBoot interface {
	// Booted is the level that a machine was booted with, "" for none of them.
	Booted(e results.Environment) (level string, err error)
	// First is the level that asks for nothing, "" for none: what is booted when a session begins.
	First() string
	Want(level string) string // what to boot, for a reader
}

// Conditions are those of a cell, which its levels set.
type Conditions struct {
	Place      Place
	Lane       lane.Spec        // what the application asks for, also where it has only the CPUs of such a lane
	Neighbours []noise.Stressor // none: nobody disturbs
	Path       string           // of the packets; "" is the first that there is
	VLAN       lane.VLAN        // their tags on the wire
	Guest      guest.Guest      // what the program of a probe inside the application runs in
	// Probes replace settings of the scenario's probes: by name of the probe, then by field.
	Probes map[string]map[string]any
	// Instances are how many of the application there are, each with a lane like Lane; 0 is one.
	Instances int
	Before    [][]string // commands that run before the application starts, and after it has ended
	After     [][]string
	Needs     []Need
	Limit     time.Duration // of each command of these; 0 is usual
	Ends      Ends
	Distance  Distance // where the application's CPUs are its own
}

// Need is a command that leaves nothing behind, and succeeds where this host can have the cell.
type Need struct {
	Run  []string `json:"run"`
	Else string   `json:"else"` // what is missing where it fails
}

// Ends are programs at both ends of the wire, between the client and the application. Each runs in the
// confines of its end, and can be used when it has printed Ready.
type Ends struct {
	Client      []string // command lines; none: nothing is there
	Application []string
	Address     netip.Addr // at which the client then reaches the application; the zero value is the wire's
}

// Ready is what a program of Ends prints when it can be used.
const Ready = "ready"

// Distance says what the application's CPUs share with the client's.
type Distance int

// The distances.
const (
	AnyDistance Distance = iota
	SameCPU
	Siblings  // hardware threads of one core
	SameL3    // but not the core
	OtherL3   // of the same NUMA node
	OtherNode // another NUMA node
)

func (d Distance) String() string {
	return [...]string{"anywhere", "that CPU", "its SMT siblings", "other cores below its L3",
		"below another L3 of its NUMA node", "on another NUMA node"}[d]
}

// Place is where the application runs.
type Place int

// The places.
const (
	InLane   Place = iota // all that Isolane does
	InCpuset              // the CPUs of the lane, and nothing else: what CPU managers do
	Anywhere              // on all CPUs of the platform
)

// Level is one as a scenario writes it: its name alone, or a map with name, words and what its driver reads.
type Level struct {
	results.Level
	Settings json.RawMessage // what the map has beside these, as JSON; nil for none
}

// Name is that of a level, factor or probe, which in YAML may be a number.
type Name string

// UnmarshalJSON takes a string or a number.
func (n *Name) UnmarshalJSON(data []byte) error {
	var number json.Number
	if json.Unmarshal(data, &number) == nil {
		*n = Name(number)
		return nil
	}
	if json.Unmarshal(data, (*string)(n)) != nil {
		if json.Unmarshal(data, new(bool)) == nil {
			return fmt.Errorf("expected a name or a number, found %s, which is how YAML reads y, n, yes, no, on "+
				"and off without quotes", data)
		}
		return fmt.Errorf("expected a name or a number, found %s", data)
	}
	return nil
}

// UnmarshalJSON takes a name or a map.
func (l *Level) UnmarshalJSON(data []byte) error {
	data = bytes.TrimSpace(data)
	if len(data) > 0 && data[0] != '{' {
		return json.Unmarshal(data, (*Name)(&l.Name))
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	for key, into := range map[string]*string{"name": &l.Name, "words": &l.Words} {
		if text, ok := all[key]; ok {
			if err := json.Unmarshal(text, (*Name)(into)); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
		delete(all, key)
	}
	if len(all) == 0 {
		return nil
	}
	var err error
	l.Settings, err = json.Marshal(all)
	return err
}

// Read reads strictly what a level has beside name and words.
func (l Level) Read(into any) error {
	if l.Settings == nil {
		return nil
	}
	return probe.Decode(l.Settings, into)
}

// MarshalJSON writes what UnmarshalJSON reads.
func (l Level) MarshalJSON() ([]byte, error) {
	all := map[string]any{}
	if l.Settings != nil {
		if err := json.Unmarshal(l.Settings, &all); err != nil {
			return nil, err
		}
	}
	if l.Words == "" && len(all) == 0 {
		return json.Marshal(l.Name)
	}
	all["name"] = l.Name
	if l.Words != "" {
		all["words"] = l.Words
	}
	return json.Marshal(all)
}

// Base is what most factors share: levels, and no part in the rest.
type Base struct {
	All []Level `json:"levels"`
}

// Levels describes them for the results.
func (b Base) Levels() []results.Level {
	var all []results.Level
	for _, l := range b.All {
		all = append(all, l.Level)
	}
	return all
}

// Quiet returns "".
func (Base) Quiet() string { return "" }

// Outside returns false.
func (Base) Outside() bool { return false }

// Programs returns none.
func (Base) Programs(string) []string { return nil }

// longest is how many characters the name of a level has at most: it is part of a cell's.
const longest = 40

// CheckName refuses names that tables and lists of names cannot show.
func CheckName(name string) error {
	odd := func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' || r == ',' }
	if name == "" || len([]rune(name)) > longest || strings.ContainsFunc(name, odd) {
		return fmt.Errorf("expected 1-%d characters without blanks and commas, found %.60q", longest, name)
	}
	return nil
}

// Read reads levels strictly; read is called for each, and refuses what it does not know.
func Read(settings []byte, read func(l *Level) error) (Base, error) {
	var all Base
	if err := probe.Decode(settings, &all); err != nil {
		return all, err
	}
	if len(all.All) == 0 {
		return all, errors.New("levels: at least one is needed")
	}
	seen := map[string]bool{}
	for i := range all.All {
		l := &all.All[i]
		if err := CheckName(l.Name); err != nil {
			return all, fmt.Errorf("levels[%d].name: %w", i, err)
		}
		if seen[l.Name] {
			return all, fmt.Errorf("levels[%d]: %q is listed twice", i, l.Name)
		}
		seen[l.Name] = true
		if err := read(l); err != nil {
			return all, fmt.Errorf("levels[%d] (%s): %w", i, l.Name, err)
		}
	}
	return all, nil
}

// Named reads the name of a level without settings, which is one of some; words say what each means.
func Named(words map[string]string) func(*Level) error {
	return func(l *Level) error {
		meaning, ok := words[l.Name]
		if !ok {
			var known []string
			for name := range words {
				known = append(known, name)
			}
			slices.Sort(known)
			return fmt.Errorf("unknown: expected one of %s", strings.Join(known, ", "))
		}
		if l.Settings != nil {
			return fmt.Errorf("expected only name and words, found %s", l.Settings)
		}
		if l.Words == "" {
			l.Words = meaning
		}
		return nil
	}
}
