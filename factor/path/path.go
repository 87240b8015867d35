// Package path is the factor of the network path to the application.
package path

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/lane"
)

// Driver is the factor "path". Names has the available paths, with their descriptions.
type Driver struct{ Names map[string]string }

// Name returns "path".
func (Driver) Name() string { return "path" }

// own is what a level has beside its name and words.
type own struct {
	Path string    `json:"path,omitempty"` // if the level's name is not that of a path
	VLAN lane.VLAN `json:"vlan,omitzero"`  // tags on the wire, like spec.network.vlan of a lane
}

const mostTag = 4094 // IEEE 802.1Q, 9.6

// Read reads the levels: names of paths, or other names with the path in a field.
func (d Driver) Read(settings []byte) (factor.Factor, error) {
	f := paths{own: map[string]own{}}
	var err error
	f.Base, err = factor.Read(settings, func(l *factor.Level) error {
		o := own{Path: l.Name}
		if rerr := l.Read(&o); rerr != nil {
			return rerr
		}
		v := o.VLAN
		if v.Inner > 0 && v.Outer == 0 {
			return errors.New("vlan.inner: expected vlan.outer too, the tag around it")
		}
		if min(v.Outer, v.Inner) < 0 || max(v.Outer, v.Inner) > mostTag {
			return fmt.Errorf("vlan: expected tags of 1-%d", mostTag)
		}
		f.own[l.Name] = o
		named := factor.Level{Level: l.Level}
		named.Name = o.Path
		if nerr := factor.Named(d.Names)(&named); nerr != nil {
			return fmt.Errorf("path %s: %w", o.Path, nerr)
		}
		l.Words = cmp.Or(l.Words, named.Words+tagged(v))
		return nil
	})
	return f, err
}

// tagged describes the tags of the frames.
func tagged(v lane.VLAN) string {
	switch {
	case v.Inner > 0:
		return fmt.Sprintf(", VLAN tags %d and in it %d", v.Outer, v.Inner)
	case v.Outer > 0:
		return fmt.Sprintf(", VLAN tag %d", v.Outer)
	}
	return ""
}

type paths struct {
	factor.Base
	own map[string]own
}

// MarshalJSON writes the levels.
func (p paths) MarshalJSON() ([]byte, error) { return json.Marshal(p.Base) }

func (p paths) Set(c *factor.Conditions, level string) {
	c.Path, c.VLAN = p.own[level].Path, p.own[level].VLAN
}
