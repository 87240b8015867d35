package lanes

import (
	"encoding/json"
	"errors"
	"io/fs"
	"slices"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/cores"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce/merge"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
)

// Machine is a host, and what its lanes own: what `isolane host -o json` prints.
type Machine struct {
	host.Host
	Lanes []plan.Lane `json:"lanes"`
}

// Machine returns the host h as it was before the lanes in force, with these lanes.
func (l *Lanes) Machine(h host.Host) (Machine, error) {
	m := Machine{Host: h, Lanes: l.Placement.Lanes}
	if len(m.Lanes) == 0 {
		return m, nil
	}
	v, err := l.View()
	m.Host = v.Host
	m.Interrupts = slices.Clone(v.Host.Interrupts)
	for i, irq := range m.Interrupts { // which a view leaves out
		at := slices.IndexFunc(h.Interrupts, func(o host.Interrupt) bool { return o.IRQ == irq.IRQ })
		if at >= 0 {
			m.Interrupts[i].Effective = h.Interrupts[at].Effective
		}
	}
	return m, err
}

// PlanFor places lanes beside those of a placement, on a host that need not be this one; with repack it may
// move those. For lanes in force on this host use Want, whose errors it returns.
func PlanFor(o Options, h host.Host, placed plan.Placement, want []lane.Lane, repack bool) (plan.Placement,
	error) {
	want, err := merge.ForOtherHost(o.Paths, want)
	switch {
	case err != nil:
		return plan.Placement{}, err
	case repack:
		return solver.Repack(h, placed, want)
	}
	return solver.Solve(h, placed, want)
}

// CoresOf collects what to tell an application about its lane, one of placement p on host h. granted is the
// cpuset that the application will see, unless that is the lane's.
func CoresOf(o Options, h host.Host, root fs.FS, p plan.Placement, l plan.Lane,
	granted cpuset.Set) cores.Request {
	r := cores.Request{Lane: l, Lanes: p.Lanes, Housekeeping: p.Housekeeping, Granted: granted,
		Cores: h.CoresOf(h.Online()), MemoryNodes: h.MemoryNodes()}
	n := netpath.Of(root, l.Name, l.Spec.Network)
	if v, is := netpath.VhostUserOf(o.Paths, n); is {
		r.VhostUser = (*cores.VhostUser)(&v)
	}
	_, recorded := fs.Stat(root, "dev/null") // a recording of a machine has no devices
	_, missing := fs.Stat(root, "dev/kvm")
	r.Emulated = recorded == nil && errors.Is(missing, fs.ErrNotExist)
	if l.Spec.Network.HasTap() {
		_, missing = fs.Stat(root, "dev/vhost-net")
		r.Tap = &cores.Tap{Device: netdev.TapOf(netpath.Device), MAC: n.MAC, MTU: l.Spec.Network.MTU,
			Vhost: missing == nil}
	}
	return r
}

// MarshalJSON adds the lanes to the JSON of the host.
func (m Machine) MarshalJSON() ([]byte, error) {
	h, err := json.Marshal(m.Host)
	if err != nil {
		return nil, err
	}
	lanes, err := json.Marshal(append([]plan.Lane{}, m.Lanes...))
	return slices.Concat(h[:len(h)-1], []byte(`,"lanes":`), lanes, []byte("}")), err
}
