package main

import (
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/netpath/drivers"
)

// options returns the options of this host. Lanes of pods have no network paths, but lanes that isolane apply
// has put in force on the host keep theirs.
func options() lanes.Options {
	return lanes.Options{Paths: drivers.Paths(), Ops: drivers.Ops()}.Complete()
}
