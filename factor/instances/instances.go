// Package instances is the factor of how many instances of the application run at once, each with its own
// lane, and of how many of them share a CPU.
package instances

import (
	"encoding/json"
	"fmt"
	"strconv"

	"isolane.dev/isolane/factor"
)

// Driver is the factor "instances".
type Driver struct{}

// Name returns "instances".
func (Driver) Name() string { return "instances" }

// maxInstances is the largest number of instances: each has an address of one IPv4 network with 24 bits,
// which also has the address of the client.
const maxInstances = 253

// own is what a level has beside its name.
type own struct {
	// Share is how many instances share each CPU: spec.cpus.share of their lanes. nil: as in the lane.
	Share *int `json:"share"`
}

// Read reads the levels: numbers of instances.
func (Driver) Read(settings []byte) (factor.Factor, error) {
	f := numbers{share: map[string]int{}}
	var err error
	f.Base, err = factor.Read(settings, func(l *factor.Level) error {
		n, nerr := strconv.Atoi(l.Name)
		if nerr != nil || n < 1 || n > maxInstances {
			return fmt.Errorf("expected a number of instances, 1-%d: one address of a /24 each", maxInstances)
		}
		var o own
		if rerr := l.Read(&o); rerr != nil {
			return rerr
		}
		if o.Share == nil {
			return nil
		}
		if f.share[l.Name] = *o.Share; *o.Share < 1 || *o.Share > n {
			return fmt.Errorf("share: %d: expected 1-%d, of the instances, or none for the lane's", *o.Share, n)
		}
		return nil
	})
	return f, err
}

type numbers struct {
	factor.Base
	share map[string]int
}

// MarshalJSON writes the levels.
func (n numbers) MarshalJSON() ([]byte, error) { return json.Marshal(n.Base) }

func (n numbers) Set(c *factor.Conditions, level string) {
	c.Instances, _ = strconv.Atoi(level) // Read has checked that it is a number
	if share := n.share[level]; share > 0 {
		c.Lane.CPUs.Share = share
	}
}
