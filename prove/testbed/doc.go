// Package testbed makes one run of a scenario on this host: it sets the conditions of a cell, starts servers
// and neighbours, measures, and takes everything back.
//
// Each run has new processes and sockets. The steps of its path and placement go through the journal; what it
// starts lives in cgroups that the journal knows.
package testbed
