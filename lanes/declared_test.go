package lanes

import (
	"encoding"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/enforce/merge"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/macvlan"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
)

// Each field of a lane changes what a host gets, or is refused by its name, or is an objective that status
// shows. The lanes of a row differ in that field alone.
func TestDeclaredIsDoneOrRefused(t *testing.T) {
	rows := map[string]struct{ without, with string }{
		"spec.cpus.count":         {"a: {cpus: {count: 1}}", "a: {cpus: {count: 2}}"},
		"spec.cpus.smt":           {"a: {cpus: {count: 2}}", "a: {cpus: {count: 2, smt: isolate}}"},
		"spec.cpus.list":          {"a: {cpus: {count: 2}}", "a: {cpus: {count: 2, list: '4-5'}}"},
		"spec.cpus.kind":          {"a: {cpus: {count: 2}}", "a: {cpus: {count: 2, kind: efficiency}}"},
		"spec.cpus.l3":            {"a: {cpus: {count: 18}}", "a: {cpus: {count: 18, l3: one}}"},
		"spec.cpus.numa":          {"a: {cpus: {count: 18}}", "a: {cpus: {count: 18, numa: one}}"},
		"spec.cpus.share":         {"a: {cpus: {count: 1}}\nb: {cpus: {count: 1, share: 2}}", "a: {cpus: {count: 1, share: 2}}\nb: {cpus: {count: 1, share: 2}}"},
		"spec.cpus.boot":          {"a: {cpus: {count: 31}}", "a: {cpus: {count: 31, boot: true}}"},
		"spec.cpus.balance":       {"a: {cpus: {count: 2}}", "a: {cpus: {count: 2, balance: false}}"},
		"spec.memory.size":        {"a: {cpus: {count: 2}}", "a: {cpus: {count: 2}, memory: {size: 1Gi}}"},
		"spec.memory.hugepages.*": {"a: {cpus: {count: 2}}", "a: {cpus: {count: 2}, memory: {hugepages: {2Mi: 64Mi}}}"},
		"spec.network.path":       {"a: {cpus: {count: 2}}", "a: {cpus: {count: 2}, network: {path: express}}"},
		"spec.network.device":     {"a: {cpus: {count: 2}}", "a: {cpus: {count: 2}, network: {device: enp96s0f1}}"},
		"spec.network.vlan.outer": {"a: {cpus: {count: 2}, network: {path: macvlan, device: enp96s0f1}}",
			"a: {cpus: {count: 2}, network: {path: macvlan, device: enp96s0f1, vlan: {outer: 9}}}"},
		"spec.network.vlan.inner": {"a: {cpus: {count: 2}, network: {path: macvlan, device: enp96s0f1, vlan: {outer: 9}}}",
			"a: {cpus: {count: 2}, network: {path: macvlan, device: enp96s0f1, vlan: {outer: 9, inner: 7}}}"},
		"spec.network.vfs": {"a: {cpus: {count: 2}, network: {device: enp96s0f1}}", "a: {cpus: {count: 2}, network: {path: sriov, device: enp96s0f1, vfs: 2}}"},
		"spec.network.addresses": {"a: {cpus: {count: 2}, network: {path: macvlan, device: enp96s0f1}}",
			"a: {cpus: {count: 2}, network: {path: macvlan, device: enp96s0f1, addresses: [192.0.2.1/24]}}"},
		"spec.network.gateways": {"a: {cpus: {count: 2}, network: {path: macvlan, device: enp96s0f1, addresses: [192.0.2.1/24]}}",
			"a: {cpus: {count: 2}, network: {path: macvlan, device: enp96s0f1, addresses: [192.0.2.1/24], gateways: [192.0.2.2]}}"},
		"spec.network.sources": {"a: {cpus: {count: 2}, network: {path: macvlan, device: enp96s0f1}}",
			"a: {cpus: {count: 2}, network: {path: macvlan, device: enp96s0f1, sources: [192.0.2.0/24]}}"},
		"spec.network.rate": {"a: {cpus: {count: 2}, network: {path: macvlan, device: enp96s0f1}}",
			"a: {cpus: {count: 2}, network: {path: macvlan, device: enp96s0f1, rate: 2Gbit}}"},
		"spec.network.mtu": {"a: {cpus: {count: 2}, network: {path: macvlan, device: enp96s0f1}}",
			"a: {cpus: {count: 2}, network: {path: macvlan, device: enp96s0f1, mtu: 1400}}"},
		"spec.network.driver": {"a: {cpus: {count: 2}, network: {path: macvlan, device: enp96s0f1}}",
			"a: {cpus: {count: 2}, network: {path: macvlan, device: enp96s0f1, driver: vfio-pci}}"},
		"spec.network.vf.trust": {"a: {cpus: {count: 2}, network: {path: macvlan, device: enp96s0f1}}",
			"a: {cpus: {count: 2}, network: {path: macvlan, device: enp96s0f1, vf: {trust: true}}}"},
		"spec.network.vf.state": {"a: {cpus: {count: 2}, network: {path: macvlan, device: enp96s0f1}}",
			"a: {cpus: {count: 2}, network: {path: macvlan, device: enp96s0f1, vf: {state: enable}}}"},
		"spec.network.queues": {"a: {cpus: {count: 2}, network: {device: enp96s0f0}}",
			"a: {cpus: {count: 2}, network: {device: enp96s0f0, queues: 2}}"},
		"spec.network.takeFromHost": {"a: {cpus: {count: 2}, network: {path: macvlan, device: enp96s0f1}}",
			"a: {cpus: {count: 2}, network: {path: macvlan, device: enp96s0f1, takeFromHost: true}}"},
		"spec.near.device":   {"a: {cpus: {count: 2}}", "a: {cpus: {count: 2}, near: {device: enp96s0f1}}"},
		"spec.near.numaNode": {"a: {cpus: {count: 2}}", "a: {cpus: {count: 2}, near: {numaNode: 1}}"},
		"spec.near.lane": {"a: {cpus: {count: 2}, near: {numaNode: 1}}\nb: {cpus: {count: 2}}",
			"a: {cpus: {count: 2}, near: {numaNode: 1}}\nb: {cpus: {count: 2}, near: {lane: a}}"},
		"spec.apart.lanes": {"a: {cpus: {count: 1}}\nb: {cpus: {count: 1}}", "a: {cpus: {count: 1}}\nb: {cpus: {count: 1}, apart: {lanes: [a]}}"},
		"spec.apart.level": {"a: {cpus: {count: 1}}\nb: {cpus: {count: 1}, apart: {lanes: [a], level: core}}",
			"a: {cpus: {count: 1}}\nb: {cpus: {count: 1}, apart: {lanes: [a], level: package}}"},
		"spec.preferred.*": {"a: {cpus: {count: 16, smt: isolate}, near: {numaNode: 0}}",
			"a: {cpus: {count: 16, smt: isolate}, near: {numaNode: 0}, preferred: {smt: 1}}"},
		"spec.roles.*":                  {"a: {cpus: {count: 2}}", "a: {cpus: {count: 2}, roles: {main: 1}}"},
		"spec.switch":                   {"a: {cpus: {count: 2}}", "a: {cpus: {count: 2}, switch: ovs-dpdk}"},
		"spec.scheduling.policy":        {"a: {cpus: {count: 1}}", "a: {cpus: {count: 1}, scheduling: {policy: other}}"},
		"spec.scheduling.priority":      {"a: {cpus: {count: 1}, scheduling: {policy: rr, priority: 1}}", "a: {cpus: {count: 1}, scheduling: {policy: rr, priority: 2}}"},
		"spec.scheduling.busyPoll":      {"a: {cpus: {count: 1}}", "a: {cpus: {count: 1}, scheduling: {busyPoll: true}}"},
		"spec.cgroup.path":              {"a: {cpus: {count: 1}}", "a: {cpus: {count: 1}, cgroup: {path: web}}"},
		"spec.cgroup.partition":         {"a: {cpus: {count: 1}}", "a: {cpus: {count: 1}, cgroup: {partition: member}}"},
		"spec.objective.rtt.*":          {"a: {cpus: {count: 1}}", "a: {cpus: {count: 1}, objective: {rtt: {p99: 1ms}}}"},
		"spec.objective.throughput.min": {"a: {cpus: {count: 1}}", "a: {cpus: {count: 1}, objective: {throughput: {min: 1Gbit/s}}}"},
	}
	fields := leaves(reflect.TypeFor[lane.Spec](), "spec")
	for _, field := range fields {
		row, known := rows[field]
		if !known {
			t.Errorf("%s: who reads it? No lanes are known that differ in it alone", field)
			continue
		}
		h := twoCards(t)
		if field == "spec.cpus.kind" {
			h = hosttest.Machine{Packages: 1, CoresPerPackage: 8, ThreadsPerCore: 2, EfficiencyCores: 4}.Host(t)
		}
		if without, with := effect(t, h, row.without), effect(t, h, row.with); without == with {
			t.Errorf("%s changes nothing: %s", field, with)
		}
		delete(rows, field)
	}
	if len(rows) > 0 || len(fields) == 0 {
		t.Errorf("a lane does not have the fields %v", rows)
	}
}

// leaves are the JSON paths of the fields that hold a value.
func leaves(of reflect.Type, path string) []string {
	if of.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return []string{path}
	}
	switch of.Kind() {
	case reflect.Map:
		return leaves(of.Elem(), path+".*")
	case reflect.Struct:
		var all []string
		for _, f := range reflect.VisibleFields(of) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			all = append(all, leaves(f.Type, path+"."+name)...)
		}
		return all
	default:
		return []string{path}
	}
}

// twoCards is a machine of two nodes with a network card on each.
func twoCards(t *testing.T) host.Host {
	t.Helper()
	h, err := host.Read(hosttest.Snapshot(t, "hwloc/32intel64-2p8co2t+8ve.tar.bz2"))
	if err != nil {
		t.Fatal(err)
	}
	device, node, everywhere := "0000:60:00.0", 1, h.Online()
	for i, d := range h.PCIDevices {
		if slices.Contains(d.Netdevs, "enp96s0f1") {
			h.PCIDevices[i].NUMANode = &node
		}
	}
	for i, name := range []string{"enp96s0f0-TxRx-0", "enp96s0f0-TxRx-1"} {
		h.Interrupts = append(h.Interrupts, host.Interrupt{IRQ: 100 + i, Name: &name, Device: &device, Affinity: &everywhere})
	}
	return h
}

// effect is all that a host and its workloads get from lanes, or why they are refused.
func effect(t *testing.T, h host.Host, text string) string {
	t.Helper()
	var file []string
	for l := range strings.Lines(text) {
		name, spec, _ := strings.Cut(strings.TrimSpace(l), ": ")
		file = append(file, "apiVersion: isolane.dev/v1alpha1\nkind: Lane\nmetadata: {name: "+name+"}\nspec: "+spec)
	}
	lanes, err := lane.Parse("test", strings.NewReader(strings.Join(file, "\n---\n")))
	if err != nil {
		t.Fatal(err)
	}
	v2 := "/sys/fs/cgroup"
	h.Kernel.Release = "6.12.0"
	h.Kernel.Cgroup = cgroup.Mounts{Version: "v2", Unified: &v2, UnifiedControllers: []string{"cpuset", "cpu", "memory"}}
	var p plan.Placement
	if err = merge.Refuse([]netpath.Path{macvlan.Path{}}, lanes); err == nil {
		p, err = solver.Solve(h, plan.Placement{}, lanes)
	}
	var refusal *plan.Refusal
	var field *lane.FieldError
	if errors.As(err, &refusal) || errors.As(err, &field) {
		return err.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	steps, err := knob.Steps(knob.View{Root: fstest.MapFS{"proc/sys/net/core/busy_poll": {Data: []byte("0")}}, Host: h}, p)
	if err != nil {
		t.Fatal(err)
	}
	all := []any{steps, attached.Declared(p)}
	for _, l := range p.Lanes {
		if l.Spec.Network.Path == (macvlan.Path{}).Name() {
			on := []netpath.Lane{netpath.Of(fstest.MapFS{}, l.Name, l.Spec.Network)}
			tags, terr := netpath.Tags(nil, on)
			more, serr := macvlan.Path{}.Steps(on)
			if all = append(all, tags, more); terr != nil || serr != nil {
				t.Fatal(terr, serr)
			}
		}
		all = append(all, declared(l), l.Spec.Objective.Bounds(), l.Roles, l.Memory, l.Hugepages)
	}
	out, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
