// Package setting is the factor of what probes are set to: offered load, concurrency, sizes.
package setting

import (
	"encoding/json"
	"errors"
	"maps"

	"isolane.dev/isolane/factor"
)

// Driver is the factor "setting".
type Driver struct{}

// Name returns "setting".
func (Driver) Name() string { return "setting" }

// Read reads the levels: what each sets, by probe and by field.
func (Driver) Read(settings []byte) (factor.Factor, error) {
	f := values{by: map[string]map[string]map[string]any{}}
	var err error
	f.Base, err = factor.Read(settings, func(l *factor.Level) error {
		var own struct {
			Probes map[string]map[string]any `json:"probes"`
		}
		if rerr := l.Read(&own); rerr != nil {
			return rerr
		}
		if len(own.Probes) == 0 {
			return errors.New("probes: missing: expected {name of a probe: {field: value}}")
		}
		f.by[l.Name] = own.Probes
		return nil
	})
	return f, err
}

type values struct {
	factor.Base
	by map[string]map[string]map[string]any
}

// MarshalJSON writes the levels.
func (v values) MarshalJSON() ([]byte, error) { return json.Marshal(v.Base) }

func (values) Outside() bool { return true }

func (v values) Set(c *factor.Conditions, level string) {
	for name, fields := range v.by[level] {
		if c.Probes == nil {
			c.Probes = map[string]map[string]any{}
		}
		if c.Probes[name] == nil {
			c.Probes[name] = map[string]any{}
		}
		maps.Copy(c.Probes[name], fields)
	}
}
