package testbed

import "isolane.dev/isolane/results"

// died makes a run void for what neighbours said, such as an unknown option, if the witness saw that they had
// ended before they were told to.
func died(run *results.Run, err error) {
	if err != nil && run.Witness.Source != "" && !run.Witness.Neighbours.Alive {
		run.Void = append(run.Void, "neighbours: "+err.Error())
	}
}
