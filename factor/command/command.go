// Package command is a factor of the user's own: commands that run before a cell's application starts, and
// after it has ended.
package command

import (
	"encoding/json"
	"errors"

	"isolane.dev/isolane/factor"
)

// Driver is the factor "command".
type Driver struct{}

// Name returns "command".
func (Driver) Name() string { return "command" }

// Read reads the levels, each with before and after: command lines, as lists of words. A level without them
// leaves the host as it is.
func (Driver) Read(settings []byte) (factor.Factor, error) {
	f := commands{by: map[string]pair{}}
	var err error
	f.Base, err = factor.Read(settings, func(l *factor.Level) error {
		var own pair
		if rerr := l.Read(&own); rerr != nil {
			return rerr
		}
		if (len(own.Before) > 0) != (len(own.After) > 0) {
			return errors.New("before, after: expected both, or none: what one changes, the other has to take back")
		}
		f.by[l.Name] = own
		return nil
	})
	return f, err
}

type pair struct {
	Before []string `json:"before"`
	After  []string `json:"after"`
}

type commands struct {
	factor.Base
	by map[string]pair
}

// MarshalJSON writes the levels.
func (c commands) MarshalJSON() ([]byte, error) { return json.Marshal(c.Base) }

func (c commands) Set(to *factor.Conditions, level string) {
	if own := c.by[level]; len(own.Before) > 0 {
		to.Before = append(to.Before, own.Before)
		to.After = append([][]string{own.After}, to.After...)
	}
}
