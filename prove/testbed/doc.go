// Package testbed makes one run of a scenario on this host: it brings the conditions of a cell about, starts
// what serves, disturbs and measures, and takes everything back.
//
// Each run has fresh processes and sockets. The steps of its path and placement are applied through the
// journal; what it starts lives in cgroups that the journal knows.
package testbed
