// Package factor is what a scenario sees of a factor: a condition that differs between its cells. Each folder
// below is a driver, which reads its own part of a scenario.
package factor

import (
	"bytes"
	"cmp"
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
	// Read reads what the scenario says about a factor beside its name, kind and where, as YAML. Unknown fields
	// are errors, and an error names its field.
	Read(settings []byte) (Factor, error)
}

// Factor is a factor of a scenario. In JSON it is its settings.
type Factor interface {
	Levels() []results.Level
	// Quiet is the level of a disturbing factor at which nothing disturbs the application. "": the factor does
	// not disturb.
	Quiet() string
	// Outside reports that the factor changes nothing about the application and its network path, so that it can
	// also be varied around a lane in force.
	Outside() bool
	// Programs are those that the factor needs on the host. Each is in the Debian package of its name, unless
	// the factor is a probe.Packaged.
	Programs(level string) []string
	Set(c *Conditions, level string)
}

// PerBoot is a Factor that only a boot of the machine changes. Its Set changes nothing: a cell waits until
// the machine is booted as it requires.
type PerBoot interface {
	// Booted returns the level that matches what a machine was booted with; "": none.
	Booted(e results.Environment) (level string, err error)
	// First returns the level that requires nothing, which is what is booted when a session begins; "": none.
	First() string
	Want(level string) string // what to boot, in words
}

// Conditions are those of a cell. The levels of its factors set them.
type Conditions struct {
	Place      Place
	Lane       lane.Spec        // what the application asks for, even if it gets only the CPUs of such a lane
	Neighbours []noise.Stressor // none: no neighbours
	Path       string           // of the packets; "": the first available
	VLAN       lane.VLAN        // tags of the packets on the wire
	Guest      guest.Guest      // in which the program of a probe inside the application runs
	// Process means that the application and its neighbours are processes in a session whose other cells have
	// pods, and Pod that they are pods. Without both they are what the session has.
	Process, Pod bool
	// Probes override settings of the scenario's probes: by name of the probe, then by field.
	Probes map[string]map[string]any
	// Instances is how many instances of the application run, each with a lane like Lane; 0: one.
	Instances int
	Before    [][]string // commands that run before the application starts, and after it has ended
	After     [][]string
	Needs     []Need
	Limit     time.Duration // of each of these commands; 0: the default
	Ends      Ends
	Distance  Distance // from the client's CPUs, if the application has CPUs of its own
}

// Need is a command that leaves nothing behind, and succeeds if this host can have the cell.
type Need struct {
	Run  []string `json:"run"`
	Else string   `json:"else"` // what is missing if it fails
}

// Ends are programs at both ends of the wire, between the client and the application. Each runs within the
// confines of its end, and is usable once it has printed Ready.
type Ends struct {
	Client      []string // command lines; nil: no program there
	Application []string
	Address     netip.Addr // at which the client then reaches the application; zero: the wire's
}

// Ready is what a program of Ends prints once it is usable.
const Ready = "ready"

// Distance says what the application's CPUs share with the client's.
type Distance int

// The distances.
const (
	AnyDistance Distance = iota
	SameCPU
	Siblings  // hardware threads of one core
	SameL3    // but different cores
	OtherL3   // within one NUMA node
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
	InLane   Place = iota // everything that Isolane does
	InCpuset              // only the CPUs of the lane, as CPU managers do
	Anywhere              // on all CPUs of the platform
	Awake                 // as Anywhere, and none of these CPUs idles deeply
)

// IsAnywhere reports whether the application runs on all CPUs of the platform.
func (p Place) IsAnywhere() bool { return p == Anywhere || p == Awake }

// Level is a level as a scenario writes it: its name alone, or a map with name, words and what its driver
// reads.
type Level struct {
	results.Level
	Settings json.RawMessage // the rest of the map, as JSON; nil: none
}

// Name is the name of a level, factor or probe. In YAML it may be a number.
type Name string

// UnmarshalJSON accepts a string or a number.
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

// UnmarshalJSON accepts a name or a map.
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

// Read decodes strictly what a level has beside name and words.
func (l Level) Read(into any) error {
	if l.Settings == nil {
		return nil
	}
	return probe.Decode(l.Settings, into)
}

// MarshalJSON is the inverse of UnmarshalJSON.
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

// Base is what most factors share: levels, and defaults for the rest.
type Base struct {
	All []Level `json:"levels"`
}

// Levels returns the levels, for the results.
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

// maxName is the most characters in the name of a level, which is part of a cell's name.
const maxName = 40

// CheckName rejects names that tables and lists of names cannot show.
func CheckName(name string) error {
	odd := func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' || r == ',' }
	if name == "" || len([]rune(name)) > maxName || strings.ContainsFunc(name, odd) {
		return fmt.Errorf("expected 1-%d characters without blanks and commas, found %.60q", maxName, name)
	}
	return nil
}

// Read decodes levels strictly. It calls read for each, which rejects what it does not know.
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

// Named returns a reader of levels without settings whose names are the keys of words. The values say what
// they mean.
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
		l.Words = cmp.Or(l.Words, meaning)
		return nil
	}
}
