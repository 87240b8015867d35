// Package prove runs a scenario: conditions in, a results directory out.
//
// Each run is one cell with fresh processes and sockets: the steps of its path and placement are
// applied through the journal, the application and the neighbours start, the probes measure, the
// witness watches, and everything is taken back. A run that the witness contradicts is void.
package prove
