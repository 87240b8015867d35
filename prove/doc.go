// Package prove runs a scenario: conditions in, a results directory out.
//
// It decides which cells and probes this host can have and in which order their runs come, over blocks and
// boots, and stores each run. prove/testbed makes the runs. A run that contradicts the witness is void.
package prove
