// Package path is the factor of the way that packets take to the application.
package path

import "isolane.dev/isolane/factor"

// Driver is the factor "path". Names are the paths that there are, with what they are in words.
type Driver struct{ Names map[string]string }

// Name returns "path".
func (Driver) Name() string { return "path" }

// Read reads the levels: names of paths.
func (d Driver) Read(settings []byte) (factor.Factor, error) {
	all, err := factor.Read(settings, factor.Named(d.Names))
	return paths{all}, err
}

type paths struct{ factor.Base }

func (paths) Set(c *factor.Conditions, level string) { c.Path = level }
