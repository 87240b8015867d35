// Package lane is the factor of what the application's lane asks for: shared CPUs, idle siblings, memory,
// interrupts, or anything else in the spec of a lane.
package lane

import (
	"encoding/json"
	"errors"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/probe"
)

// Driver is the factor "lane".
type Driver struct{}

// Name returns "lane".
func (Driver) Name() string { return "lane" }

// Read reads the levels: what each sets in the spec of the lane. A level without settings is the scenario's
// lane.
func (Driver) Read(settings []byte) (factor.Factor, error) {
	f := specs{by: map[string]json.RawMessage{}}
	var err error
	f.Base, err = factor.Read(settings, func(l *factor.Level) error {
		if l.Settings == nil {
			return nil
		}
		var own struct {
			Spec *json.RawMessage `json:"spec"`
		}
		if rerr := l.Read(&own); rerr != nil {
			return rerr
		}
		if own.Spec == nil {
			return errors.New("spec: missing: expected fields of a lane's spec, see isolane explain lane")
		}
		f.by[l.Name] = *own.Spec
		return probe.Decode(*own.Spec, &lane.Spec{})
	})
	return f, err
}

type specs struct {
	factor.Base
	by map[string]json.RawMessage
}

// MarshalJSON writes the levels.
func (s specs) MarshalJSON() ([]byte, error) { return json.Marshal(s.Base) }

// Set merges a level into the lane, field by field. The scenario validates the lane, because only it knows
// all of it.
func (s specs) Set(c *factor.Conditions, level string) {
	patch, ok := s.by[level]
	if !ok {
		return
	}
	merged := lane.Spec{}
	for _, text := range []any{c.Lane, patch} { // so that maps are not shared with other cells
		data, err := json.Marshal(text)
		if err == nil {
			err = json.Unmarshal(data, &merged)
		}
		if err != nil {
			panic(err) // Read has decoded the one, and the scenario the other
		}
	}
	c.Lane = merged
}
