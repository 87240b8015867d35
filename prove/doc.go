// Package prove runs a scenario: conditions in, a results directory out.
//
// It says which cells and probes this host can have, in which order their runs come over blocks and boots,
// and stores each. prove/testbed makes the runs. A run that the witness contradicts is void.
package prove
