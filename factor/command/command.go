// Package command is a factor of the user's own: commands that run before a cell's application starts and
// after it has ended, and programs that run at both ends of the wire in between.
package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/quantity"
)

// Driver is the factor "command".
type Driver struct{}

// Name returns "command".
func (Driver) Name() string { return "command" }

// Read reads the levels. Each has command lines, as lists of words, in before and after, in needs, or in
// ends. A level without any leaves the host as it is.
func (Driver) Read(settings []byte) (factor.Factor, error) {
	f := commands{by: map[string]level{}}
	var err error
	f.Base, err = factor.Read(settings, func(l *factor.Level) error {
		var own level
		if rerr := l.Read(&own); rerr != nil {
			return rerr
		}
		f.by[l.Name] = own
		return own.validate()
	})
	return f, err
}

type level struct {
	Before []string      `json:"before"`
	After  []string      `json:"after"`
	Needs  []factor.Need `json:"needs"`
	// Limit is how long each of these commands may take; nil: the default.
	Limit *quantity.Duration `json:"limit"`
	Ends  *ends              `json:"ends"`
}

// ends are the programs of a level. MTU is that of the device that they make; it is in their environment.
// Overhead is how many bytes they add to each packet of it.
type ends struct {
	Client      []string   `json:"client"`
	Application []string   `json:"application"`
	Address     netip.Addr `json:"address"`
	MTU         int        `json:"mtu"`
	Overhead    int        `json:"overhead"`
}

func (l level) validate() error {
	if (len(l.Before) > 0) != (len(l.After) > 0) {
		return errors.New("before, after: expected both, or none: what one changes, the other has to take back")
	}
	if most := 24 * time.Hour; l.Limit != nil && (*l.Limit == 0 || l.Limit.Duration() > most) {
		return fmt.Errorf("limit: %s: expected at most %s, and more than 0", l.Limit, most)
	}
	for i, n := range l.Needs {
		if len(n.Run) == 0 || n.Else == "" {
			return fmt.Errorf("needs[%d]: expected run, a command, and else: what is missing where it fails", i)
		}
	}
	if l.Ends == nil {
		return nil
	}
	return l.Ends.validate()
}

// The largest packets of the wire, and the largest size that all IPv4 hosts accept (RFC 791).
const (
	wireMTU  = 1500
	leastMTU = 576
	leastV6  = 1280 // the same of IPv6 (RFC 8200)
)

func (e ends) validate() error {
	least := leastMTU
	if e.Address.Is6() {
		least = leastV6
	}
	switch {
	case len(e.Client) == 0 || len(e.Application) == 0:
		return errors.New("ends: expected client and application: the program at each end")
	case e.MTU == 0 && e.Overhead == 0:
		return nil
	case e.MTU < least || e.Overhead < 1:
		return fmt.Errorf("ends: mtu %d, overhead %d: expected an MTU of %d at least, and how many bytes come "+
			"around each packet", e.MTU, e.Overhead, least)
	case e.MTU+e.Overhead > wireMTU:
		return fmt.Errorf("ends.mtu: %d with %d bytes around it makes %d, and the wire carries %d: expected %d at "+
			"most", e.MTU, e.Overhead, e.MTU+e.Overhead, wireMTU, wireMTU-e.Overhead)
	}
	return nil
}

// program returns a command line with the MTU in its environment, if the scenario sets it.
func (e ends) program(argv []string) []string {
	if e.MTU == 0 {
		return argv
	}
	return append([]string{"env", fmt.Sprintf("MTU=%d", e.MTU)}, argv...)
}

type commands struct {
	factor.Base
	by map[string]level
}

// MarshalJSON writes the levels.
func (c commands) MarshalJSON() ([]byte, error) { return json.Marshal(c.Base) }

func (c commands) Set(to *factor.Conditions, name string) {
	own := c.by[name]
	if len(own.Before) > 0 {
		to.Before = append(to.Before, own.Before)
		to.After = append([][]string{own.After}, to.After...)
	}
	to.Needs = append(to.Needs, own.Needs...)
	if own.Limit != nil {
		to.Limit = max(to.Limit, own.Limit.Duration())
	}
	if e := own.Ends; e != nil {
		to.Ends = factor.Ends{Client: e.program(e.Client), Application: e.program(e.Application),
			Address: e.Address}
	}
}
