// Package router measures downloads through virtual routers. Each instance of the application is the router
// of one customer, who fetches files by HTTP from a server outside while the other customers do the same.
//
// The router is the kernel, in a network namespace: nftables translates addresses and drops what the customer
// did not ask for, an HTB class shapes what the customer gets, and dnsmasq gives the customer an address and
// answers DNS. Or it is a switch that polls, Open vSwitch, whose rules do the first three; frames for the
// router itself go to the same dnsmasq. The customer uses all of it: without a lease and an answer it fetches
// nothing.
package router

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/http"
	"isolane.dev/isolane/probe/webserver"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
)

// kind is the name of the probe.
const kind = "router"

// inside returns the network behind each router. It is the same behind all of them, as in homes.
func inside() netip.Prefix { return netip.PrefixFrom(own(), 24).Masked() }

// own returns the router's address in that network.
func own() netip.Addr { return netip.AddrFrom4([4]byte{192, 168, 1, 1}) }

// server is the name of the server outside, in a domain reserved for tests (RFC 6761).
const server = "files.isolane.test"

// Driver is the probe "router". Its clients, and its application, are commands of the isolane binary.
type Driver struct{}

// Probe measures what routers carry. Customers fetch like the clients of the probe http. Rate and share are
// those of all customers together, connections those of each.
type Probe struct {
	http.Probe
	Shape      quantity.BitRate `json:"shape,omitempty"`  // the most that a customer gets; 0: no limit
	Attack     attack           `json:"attack,omitempty"` // what the last customer does instead of fetching
	Forwarding string           `json:"forwarding"`       // what routes: kernel (default) or poll-mode
}

// The values of Probe.Forwarding.
const (
	kernel   = "kernel"
	pollMode = "poll-mode" // Open vSwitch's data path in user space
)

// Name returns "router".
func (Driver) Name() string { return kind }

// The programs of the packages nftables and dnsmasq-base.
const (
	nft     = "nft"
	dnsmasq = "dnsmasq"
)

// Programs returns those of the router.
func (Driver) Programs() []string { return []string{nft, dnsmasq} }

// Package returns the Debian package of one of the programs.
func (Driver) Package(program string) string {
	return map[string]string{nft: "nftables", dnsmasq: "dnsmasq-base"}[program]
}

// Read reads the settings of a Probe.
func (Driver) Read(settings []byte) (probe.Probe, error) {
	p := Probe{Probe: http.New(), Forwarding: kernel}
	err := probe.Decode(settings, &p)
	if err != nil {
		return nil, err
	}
	if p.Wait == http.Spin {
		return nil, errors.New("wait: spin: expected block: the customers and the server share CPUs")
	}
	if p.Forwarding != kernel && p.Forwarding != pollMode {
		return nil, fmt.Errorf("forwarding: %q: expected %s or %s", p.Forwarding, kernel, pollMode)
	}
	p.Wait = http.Block
	if err = p.Attack.validate(); err == nil {
		p.Probe, err = p.Complete()
	}
	return p, err
}

// At returns the probe with that part of a capacity, in requests per second, as its rate.
func (p Probe) At(capacity float64) probe.Probe {
	p.Rate, p.Share = probe.Rate(capacity*p.Part()), 0
	return p
}

// Saturating returns the closed loop, which requests as much as is carried, without an attack.
func (p Probe) Saturating() probe.Probe {
	p.Share, p.Arrivals, p.Seed, p.Attack = 0, "", 0, ""
	return p
}

// Needs returns the program of a router that polls, and its Debian package; none for the kernel.
func (p Probe) Needs() (name, debian string) {
	if p.Forwarding == pollMode {
		return vswitchd, "openvswitch-switch"
	}
	return "", ""
}

// Capabilities returns those with which a router sets up its devices, and dnsmasq manages them. One that
// polls also takes frames by AF_XDP: libxdp locks memory, and opens programs of the kernel by their number.
func (p Probe) Capabilities() []string {
	if p.Forwarding == pollMode {
		return []string{"NET_ADMIN", "NET_RAW", "IPC_LOCK", "SYS_ADMIN"}
	}
	return []string{"NET_ADMIN"}
}

// TakesFrames reports that the router takes frames as they are at its devices, before the kernel does.
func (p Probe) TakesFrames() bool { return p.Forwarding == pollMode }

// InMachine returns what a router of the kernel needs in a virtual machine.
func (p Probe) InMachine() (programs, modules []string, can bool) {
	return []string{nft, dnsmasq}, []string{"nf_tables", "nft_ct", "nft_masq", "nft_chain_nat", "sch_htb"},
		p.Forwarding == kernel
}

// OnHost says why a router that polls cannot run in a guest; "" for the kernel.
func (p Probe) OnHost() string {
	if p.Forwarding == pollMode {
		return "a router that polls is a process of the host: expected runtime host"
	}
	return ""
}

// The suffixes that make names of metrics from the probe's name.
const (
	fairness = "-fairness"
	strays   = "-strays"
	outside  = "-outside-cpu"
)

// busyOutside is the percentage of their CPUs' time beyond which customers and server may be the limit.
const busyOutside = 95

// Metrics returns those of the downloads, how even they are among customers, whether frames went astray, and
// how busy the CPUs were that customers and server share.
func (p Probe) Metrics(name string) []results.Metric {
	all := p.Probe.Metrics(name)
	for i := range all {
		if all[i].Sampled {
			all[i].About += ", through the customer's router"
		}
	}
	return append(all,
		results.Metric{Name: name + fairness, Quantity: kind + fairness, Noun: "fairness among customers",
			Title: "Fairness", Unit: "of 1", Better: results.Higher, Margin: 0.05, Role: results.Check,
			About: "Jain's index of what each customer got of what it asked for, in a closed loop of what it got: " +
				"1 is even, 1/n is one customer alone"},
		results.Metric{Name: name + strays, Quantity: kind + strays, Noun: "frames of others at a customer",
			Title: "Frames of others", About: "frames of IPv4, IPv6 and ARP at a customer's device that are not " +
				"from its router and for it, or are an attacker's", Unit: "frames", Better: results.Lower, Margin: 0.10,
			Role: results.Check, Guards: name},
		results.Metric{Name: name + outside, Quantity: kind + outside, Noun: "CPU of customers and server",
			Title: "CPU of customers and server", About: "time in which the CPUs outside were not idle",
			Unit: "%", Better: results.Lower, Margin: 0.10, Role: results.Check, Guards: name, Limit: busyOutside})
}

// Server returns the command line of a router, which is the same for all loads.
func (p Probe) Server(self string, c probe.Conditions) []string {
	settings := "{forwarding: " + p.Forwarding
	if p.Shape > 0 {
		settings += fmt.Sprintf(", shape: %s", p.Shape)
	}
	return probe.Command(self, kind, c, "--serve", settings+"}")
}

// Outside returns the command line of the server from which customers fetch.
func (p Probe) Outside(self string, c probe.Conditions) []string { return p.Settings.Server(self, c) }

// Client returns the command line of a customer.
func (p Probe) Client(self string, c probe.Conditions) []string {
	if c.Instance != c.Instances-1 || p.Attack == restart { // then the customer fetches as the others do
		p.Attack = ""
	}
	p.Probe = p.Of(c)
	return probe.OwnClient(self, kind, p, c)
}

// Among rejects an attack if nobody but the attacker is there.
func (p Probe) Among(instances int) error {
	if p.Attack == "" || instances > 1 {
		return nil
	}
	return fmt.Errorf("attack: %s: expected two customers or more, so that one is left to be measured, found "+
		"%d: a factor of kind instances has more", p.Attack, instances)
}

// Restarts returns the index of the instance whose router is killed and restarted within the window;
// negative: none.
func (p Probe) Restarts(instances int) int {
	if p.Attack != restart {
		return -1
	}
	return instances - 1
}

// outage says what the customer of the restarted router saw.
func outage(name string, m results.Measurement) string {
	s := m.Samples[name]
	text := fmt.Sprintf("restart of the last customer's router: of %d downloads of that customer %d failed or "+
		"had no reply", s.Wanted, max(s.Lost, uint64(m.Values[name+webserver.Errors])))
	if why := m.Facts["firstFailure"]; why != "" {
		text += ", the first: " + why
	}
	if h, err := s.Histogram.Decode(); err == nil && h.TotalCount() > 0 {
		text += fmt.Sprintf("; the longest of the others took %s", time.Duration(h.Max()).Round(time.Millisecond))
	}
	return text
}

// Merge merges the measurements of all customers that fetch. What the attacker did is a fact in it.
func (p Probe) Merge(name string, each []results.Measurement) (results.Measurement, error) {
	var attack string
	astray := 0.0
	if last := len(each) - 1; p.Attack != "" {
		if err := p.Among(len(each)); err != nil {
			return each[0], err
		}
		attack, astray = each[last].Facts["attack"], each[last].Values[name+strays]
		if p.Attack == restart {
			attack = outage(name, each[last])
		}
		each = each[:last]
	}
	m, err := p.Probe.Merge(name, each)
	if err != nil {
		return m, err
	}
	if attack != "" {
		m.Facts["attack"] = attack
		m.Values[name+strays] += astray
	}
	var n, sum, squares, most float64
	for _, one := range each {
		most = max(most, one.Values[name+outside]) // all of the same CPUs
		got := one.Values[name+webserver.Requests] * time.Duration(one.Window).Seconds()
		if p.Rate != probe.Max {
			asked := float64(one.Samples[name].Wanted)
			if asked == 0 {
				continue
			}
			got /= asked
		}
		n, sum, squares = n+1, sum+got, squares+got*got
	}
	m.Values[name+outside] = most
	if squares > 0 { // else nobody got anything
		m.Values[name+fairness] = sum * sum / (n * squares)
	}
	return m, nil
}
