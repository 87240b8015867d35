package router

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/webserver"
	"isolane.dev/isolane/results"
)

// Each customer offers its part of the load, with its own arrivals, and all use routers with the same
// command.
func TestParts(t *testing.T) {
	p, err := Driver{}.Read([]byte("{rate: 100, seed: 7, shape: 1Gbit/s, connections: 3}"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		c := probe.Conditions{Instance: i, Instances: 4}
		argv := p.Client("isolane", c)
		own, err := Driver{}.Read([]byte(argv[len(argv)-1]))
		if err != nil {
			t.Fatal(err)
		}
		if q := own.(Probe); q.Rate != 25 || q.Seed != uint64(7+i) || q.Connections != 3 || q.Shape != p.(Probe).Shape {
			t.Errorf("customer %d: %+v", i, q)
		}
		served := p.Server("isolane", c)
		if other := p.(Probe).Saturating().Server("isolane", c); !slices.Equal(served, other) {
			t.Errorf("%q and %q: another load has another router", served, other)
		}
	}
	for text, want := range map[string]string{
		"{rate: 5, wait: spin}": "wait: spin: expected block",
		"{rate: 5, share: 10%}": "share, rate: expected one of them",
		"{shape: fast}":         "shape",
		"{attack: smile}":       "attack: \"smile\": expected flood, spoof, scan or restart",
		"{vlan: 3}":             "vlan",
		"{forwarding: dpdk}":    `forwarding: "dpdk": expected kernel or poll-mode`,
	} {
		if _, err := (Driver{}).Read([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// A missing program is named with its Debian package, which has another name.
func TestPackages(t *testing.T) {
	for program, want := range map[string]string{nft: "nftables", dnsmasq: "dnsmasq-base"} {
		if got := probe.Package(Driver{}, program); got != want || !slices.Contains((Driver{}).Programs(), program) {
			t.Errorf("%s is in %q, want %q", program, got, want)
		}
	}
}

// Fairness is 1 if all carry the same, even if there is only one, and 1/n if one carries everything.
func TestFairness(t *testing.T) {
	var p Probe
	var asked uint64
	of := func(rates ...float64) float64 {
		var each []results.Measurement
		for _, r := range rates {
			each = append(each, results.Measurement{Name: "get", Window: 2e9,
				Values:  map[string]float64{"get" + webserver.Requests: r, "get" + outside: 10 * r},
				Samples: map[string]results.Samples{"get": {Wanted: asked}}})
			asked *= 2
		}
		m, err := p.Merge("get", each)
		if err != nil {
			t.Fatal(err)
		}
		if most := 10 * slices.Max(rates); m.Values["get"+outside] != most {
			t.Errorf("%v: the CPUs outside were busy for %g%%, want %g%%", rates, m.Values["get"+outside], most)
		}
		return m.Values["get"+fairness]
	}
	p.Rate = probe.Max
	if a, b, c := of(5, 5, 5, 5), of(8), of(0, 0, 3, 0); a != 1 || b != 1 || c != 0.25 {
		t.Errorf("%g, %g, %g", a, b, c)
	}
	// In an open loop fairness is relative to the request, which is random: here the requests differ by a factor
	// of two.
	if p.Rate, asked = 9, 10; of(5, 10, 20) != 1 {
		t.Error("customers who get all that they ask for are not treated alike")
	}
	if asked = 10; of(5, 5) != 0.9 {
		t.Errorf("%g, want 0.9", of(5, 5))
	}
	// Who asks for nothing, by chance, is not treated worse.
	some := results.Measurement{Name: "get", Window: 2e9, Values: map[string]float64{"get" + webserver.Requests: 1},
		Samples: map[string]results.Samples{"get": {Wanted: 2}}}
	none := results.Measurement{Name: "get", Window: 2e9, Values: map[string]float64{"get" + webserver.Requests: 0}}
	if m, err := p.Merge("get", []results.Measurement{some, none, some}); err != nil || m.Values["get"+fairness] != 1 || len(m.Void) > 0 {
		t.Errorf("one of three asks for nothing: %v, %v, %v", m.Values, m.Void, err)
	}
}

// What an attacker measures is nobody's download, and what it did is reported.
func TestAttackerDoesNotFetch(t *testing.T) {
	fetched := results.Measurement{Name: "get", Window: 2e9, Values: map[string]float64{"get" + webserver.Requests: 7}, Facts: map[string]string{}}
	attacked := results.Measurement{Name: "get", Window: 2e9, Facts: map[string]string{"attack": "flood"}}
	m, err := Probe{Attack: flood}.Merge("get", []results.Measurement{fetched, attacked})
	if err != nil || m.Values["get"+webserver.Requests] != 7 || m.Values["get"+fairness] != 1 || m.Facts["attack"] != "flood" {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err = (Probe{Attack: flood}).Merge("get", []results.Measurement{attacked}); err == nil {
		t.Error("an attacker alone: no error")
	}
	for i, want := range []attack{"", flood} {
		argv := Probe{Attack: flood}.Client("isolane", probe.Conditions{Instance: i, Instances: 2})
		if text := argv[len(argv)-1]; strings.Contains(text, "attack") != (want != "") {
			t.Errorf("customer %d of 2: %s", i, text)
		}
	}
}

// The customer whose router is restarted fetches as the others do. It does not count in the figures, but a
// stray frame at it does, and what it lost is reported.
func TestRestartIsNamed(t *testing.T) {
	p := Probe{Attack: restart}
	if p.Restarts(3) != 2 || (Probe{}).Restarts(3) >= 0 || (Probe{Attack: flood}).Restarts(3) >= 0 {
		t.Error("restarts another instance")
	}
	for i := range 2 {
		if argv := p.Client("isolane", probe.Conditions{Instance: i, Instances: 2}); strings.Contains(argv[len(argv)-1], "attack") {
			t.Errorf("customer %d: %s", i, argv)
		}
	}
	one := func(rate, astray, errors float64) results.Measurement {
		return results.Measurement{Name: "get", Window: 2e9, Facts: map[string]string{"firstFailure": "reset"},
			Values:  map[string]float64{"get" + webserver.Requests: rate, "get" + strays: astray, "get" + webserver.Errors: errors},
			Samples: map[string]results.Samples{"get": {Wanted: 14, Lost: 1}}}
	}
	m, err := p.Merge("get", []results.Measurement{one(7, 1, 0), one(3, 2, 4)})
	want := "restart of the last customer's router: of 14 downloads of that customer 4 failed or had no reply, the first: reset"
	if err != nil || m.Values["get"+webserver.Requests] != 7 || m.Values["get"+strays] != 3 || m.Facts["attack"] != want {
		t.Errorf("%+v, %v", m, err)
	}
}

// Customers whose trends go in opposite directions do not cancel out.
func TestTrendOfAll(t *testing.T) {
	var each []results.Measurement
	for _, trend := range []float64{20, -30, 10} {
		each = append(each, results.Measurement{Name: "get", Window: 2e9, Values: map[string]float64{"get" + probe.TrendWord: trend}})
	}
	if m, err := (Probe{}).Merge("get", each); err != nil || m.Values["get"+probe.TrendWord] != -30 {
		t.Errorf("%v, %v", m.Values, err)
	}
}

// Whatever comes from the network is parsed or rejected.
func FuzzAnswer(f *testing.F) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	good := message(7, mac, offer, option(optionRouter, own().AsSlice()))
	good[0] = 2
	f.Add(good)
	f.Add(good[:atOptions+1])
	f.Add(append(good[:atOptions:atOptions], 0, 0, optionRouter, 200))
	f.Fuzz(func(t *testing.T, in []byte) {
		if isAnswer(in, 7) && len(in) < atOptions {
			t.Error("too short")
		}
		for code := range 256 {
			if v := find(in, byte(code)); len(v) > len(in) {
				t.Error("longer than the message")
			}
		}
	})
	if v := find(good, optionRouter); !isAnswer(good, 7) || isAnswer(good, 8) || !slices.Equal(v, own().AsSlice()) {
		f.Errorf("router %v", v)
	}
}

// A router that polls is another command, needs Open vSwitch, takes frames raw, and is a process of the host.
func TestForwarding(t *testing.T) {
	of := func(text string) Probe {
		p, err := Driver{}.Read([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return p.(Probe)
	}
	plain, polls := of("{rate: 5}"), of("{rate: 5, forwarding: poll-mode}")
	if argv := polls.Server("isolane", probe.Conditions{}); slices.Equal(argv, plain.Server("isolane", probe.Conditions{})) ||
		of(argv[len(argv)-1]).Forwarding != pollMode {
		t.Errorf("%q", argv)
	}
	program, debian := polls.Needs()
	none, _ := plain.Needs()
	if program != "ovs-vswitchd" || debian != "openvswitch-switch" || none != "" {
		t.Errorf("needs %s of %s, and %q", program, debian, none)
	}
	if _, _, can := polls.InMachine(); can || polls.OnHost() == "" || plain.OnHost() != "" || !polls.TakesFrames() || plain.TakesFrames() {
		t.Errorf("in a machine: %v; %q, %q", can, polls.OnHost(), plain.OnHost())
	}
	if dropped, err := plain.Dropped(t.Context(), probe.Conditions{}); len(dropped) > 0 || err != nil {
		t.Errorf("the kernel's router: %v, %v", dropped, err)
	}
}

// The commands of Open vSwitch: threads by the CPUs of this process, a bridge that without rules forwards nothing, a meter.
func TestSwitch(t *testing.T) {
	r := ends{outMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, inMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, gateway: net.HardwareAddr{2, 0, 0, 0, 0, 3},
		address: netip.MustParseAddr("198.18.0.2"), shape: 20_000_000}
	r.cpus.Set(1)
	r.cpus.Set(65)
	bridge := strings.Join(r.bridge(), " ")
	for _, want := range []string{"fail_mode=secure", "datapath_type=netdev", `other_config:hwaddr="02:00:00:00:00:02"`,
		"00000000000000020000000000000002 "} {
		if !strings.Contains(bridge, want) {
			t.Errorf("%s: expected %s", bridge, want)
		}
	}
	if got := r.meter(); got != "meter=1,kbps,burst,band=type=drop,rate=20000,burst_size=2000" {
		t.Error(got)
	}
	for _, want := range []string{
		"table=0,priority=6,in_port=2,ip,dl_dst=02:00:00:00:00:02,nw_src=192.168.1.0/24,actions=ct(table=1,nat)\n",
		"in_port=2,ip,ct_state=+new+trk,actions=ct(commit,table=2,nat(src=198.18.0.2),exec(",
		"table=2,in_port=2,ip,actions=dec_ttl,mod_dl_src:02:00:00:00:00:01,mod_dl_dst:02:00:00:00:00:03,output:1\n",
		"actions=meter:1,dec_ttl,mod_dl_src:02:00:00:00:00:02,", "load:0xc6120002->NXM_OF_ARP_SPA[]", "load:0x020000000001->NXM_NX_ARP_SHA[]",
	} {
		if got := r.rules(); !strings.Contains(got, want) {
			t.Errorf("expected %s in\n%s", want, got)
		}
	}
	if r.shape = 0; strings.Contains(r.rules(), "meter") {
		t.Error("a meter that there is not")
	}
}

// What the kernel counts at both devices and the polling threads have not taken found no room; the main thread polls the
// bridge's own port.
func TestCounted(t *testing.T) {
	threads := "pmd thread numa_id 0 core_id 0:\n  packets received: 100\n  packet recirculations: 7\n" +
		"pmd thread numa_id 0 core_id 1:\n  packets received: 20\nmain thread:\n  packets received: 19\n"
	ports := "OFPST_PORT reply (OF1.3) (xid=0x2): 3 ports\n  port LOCAL: rx pkts=2, bytes=180\n           tx pkts=9, bytes=0\n" +
		"  port  1: rx pkts=91, bytes=266\n           tx pkts=2, bytes=180\n  port  2: rx pkts=41, bytes=266\n"
	meters := "OFPST_METER reply (OF1.3) (xid=0x2):\nmeter:1 flow_count:1 packet_in_count:50 byte_in_count:0 duration:0.012s bands:\n0: packet_count:5 byte_count:0\n"
	got := counted(threads, ports, meters)
	if want := map[string]uint64{noRoom: 12, shaped: 5}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got = counted(threads, "", ""); got[noRoom] != 0 {
		t.Errorf("more taken than came: %v", got)
	}
}
