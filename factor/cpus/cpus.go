// Package cpus is the factor of how many CPUs the application has.
package cpus

import (
	"fmt"
	"strconv"

	"isolane.dev/isolane/factor"
)

// Driver is the factor "cpus".
type Driver struct{}

// Name returns "cpus".
func (Driver) Name() string { return "cpus" }

// Read reads the levels: numbers of CPUs.
func (Driver) Read(settings []byte) (factor.Factor, error) {
	all, err := factor.Read(settings, func(l *factor.Level) error {
		if n, err := strconv.Atoi(l.Name); err != nil || n < 1 || n > 8192 || l.Settings != nil {
			return fmt.Errorf("expected a number of CPUs, 1-8192")
		}
		return nil
	})
	return counts{all}, err
}

type counts struct{ factor.Base }

func (counts) Set(c *factor.Conditions, level string) {
	c.Lane.CPUs.Count, _ = strconv.Atoi(level) // Read has checked that it is a number
}
