// Package noise is the factor of what the neighbours do: nothing, or the work of stress-ng's stressors and of
// hackbench.
package noise

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/noise"
)

// Driver is the factor "noise".
type Driver struct{}

// quiet is the level without neighbours.
const quiet = "quiet"

// Name returns "noise".
func (Driver) Name() string { return "noise" }

// Read reads the levels: quiet, and any others that have neighbours.
func (Driver) Read(settings []byte) (factor.Factor, error) {
	f := neighbours{by: map[string][]noise.Stressor{}}
	var err error
	f.Base, err = factor.Read(settings, func(l *factor.Level) error {
		var own struct {
			Neighbours []noise.Stressor `json:"neighbours"`
		}
		if rerr := l.Read(&own); rerr != nil {
			return rerr
		}
		switch n := len(own.Neighbours); {
		case l.Name == quiet && n > 0:
			return errors.New("neighbours: expected none where it is quiet")
		case l.Name != quiet && n == 0:
			return errors.New("neighbours: missing: this level has nobody who makes noise: expected some, or the " +
				"name quiet")
		}
		for i, n := range own.Neighbours {
			if verr := n.Validate(); verr != nil {
				return fmt.Errorf("neighbours[%d].%w", i, verr)
			}
			same := func(other noise.Stressor) bool { return other.Name == n.Name }
			if slices.ContainsFunc(own.Neighbours[:i], same) {
				return fmt.Errorf("neighbours[%d].name: %s is there twice: expected each once", i, n.Name)
			}
		}
		f.by[l.Name] = own.Neighbours
		return nil
	})
	return f, err
}

type neighbours struct {
	factor.Base
	by map[string][]noise.Stressor
}

// MarshalJSON writes the levels.
func (n neighbours) MarshalJSON() ([]byte, error) { return json.Marshal(n.Base) }

func (n neighbours) Quiet() string {
	if _, ok := n.by[quiet]; ok {
		return quiet
	}
	return ""
}

func (neighbours) Outside() bool { return true }

func (n neighbours) Programs(level string) []string { return noise.Programs(n.by[level]) }

// Package returns the Debian package of a program.
func (neighbours) Package(program string) string { return noise.Package(program) }

func (n neighbours) Set(c *factor.Conditions, level string) { c.Neighbours = n.by[level] }
