package main

import (
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/netpath/drivers"
)

// options are those of this host. Pods' lanes have no paths; lanes that isolane apply has put in force on the
// host keep theirs.
func options() lanes.Options {
	return lanes.Options{Paths: drivers.Paths(), Ops: drivers.Ops()}.Complete()
}
