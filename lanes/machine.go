package lanes

import (
	"encoding/json"
	"slices"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/plan"
)

// Machine is a host, and what its lanes own: what `isolane host -o json` prints.
type Machine struct {
	host.Host
	Lanes []plan.Lane `json:"lanes"`
}

// Machine returns the host h as it was before the lanes in force, and these.
func (l *Lanes) Machine(h host.Host) (Machine, error) {
	m := Machine{Host: h, Lanes: l.Placement.Lanes}
	if len(m.Lanes) == 0 {
		return m, nil
	}
	v, err := l.View()
	m.Host = v.Host
	return m, err
}

// MarshalJSON adds the lanes to what the host prints of itself.
func (m Machine) MarshalJSON() ([]byte, error) {
	h, err := json.Marshal(m.Host)
	if err != nil {
		return nil, err
	}
	lanes, err := json.Marshal(append([]plan.Lane{}, m.Lanes...))
	return slices.Concat(h[:len(h)-1], []byte(`,"lanes":`), lanes, []byte("}")), err
}
