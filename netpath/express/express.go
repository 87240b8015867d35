// Package express is a bridge with a short cut: an eBPF program where frames enter the host's ends of lanes'
// devices and their uplink hands those for a lane straight to the inside of its namespace, and those for
// anybody else to the uplink. What is for several, such as ARP, takes the bridge.
package express

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"

	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/bridge"
)

// Path is the path "express".
type Path struct{}

// below is the bridge. Frames are joined where they enter the host: those that are handed over are not joined
// later.
func below() bridge.Path { return bridge.Path{GRO: true} }

// Name returns "express".
func (Path) Name() string { return "express" }

// Words say what it is.
func (Path) Words() string {
	return "the host only hands frames over, by eBPF from the uplink into the application's namespace and back"
}

// Joined says that the wire joins frames, as the driver of a network card does.
func (Path) Joined() bool { return true }

// Declared refuses nothing.
func (Path) Declared(lane.Network) error { return nil }

// Possible says why a lane cannot have the path on this host as it is.
func (p Path) Possible(l netpath.Lane) error {
	if err := below().Possible(l); err != nil {
		return err
	}
	if err := p.Supported(); err != nil {
		return fmt.Errorf("spec.network.path: %w", err)
	}
	if l.Uplink == "" {
		return nil
	}
	if u, err := l.FindUplink(); err != nil || u.Bridge {
		return err
	}
	return free(l.Uplink)
}

// Supported says why this kernel cannot do it, or nil.
func (Path) Supported() error {
	err := features.HaveProgramHelper(ebpf.SchedCLS, asm.FnRedirectPeer)
	if err != nil {
		return fmt.Errorf("express needs bpf_redirect_peer (Linux 5.10): %w", err)
	}
	return nil
}

// Steps return what makes the path of these lanes. An uplink that is a bridge itself stays as it is: what is
// for no lane goes its way.
func (Path) Steps(lanes []netpath.Lane) ([]journal.Step, error) {
	steps, err := below().Steps(lanes)
	if err != nil {
		return nil, err
	}
	tables := map[string]table{} // by uplink
	for _, l := range lanes {
		t, ok := tables[l.Uplink]
		if !ok {
			t = table{Lanes: map[string]string{}}
			if u, uerr := l.FindUplink(); l.Uplink != "" && (uerr != nil || !u.Bridge) {
				t.Uplink = l.Uplink
			}
		}
		t.Lanes[l.MAC] = netpath.Port(l.Name)
		tables[l.Uplink] = t
	}
	var uplinks []string
	for _, l := range lanes {
		t := tables[l.Uplink]
		steps = append(steps, t.of(l.MAC, netpath.Port(l.Name)))
		if t.Uplink != "" && !slices.Contains(uplinks, t.Uplink) {
			uplinks = append(uplinks, t.Uplink)
			steps = append(steps, table{Lanes: t.Lanes}.step(t.Uplink))
		}
	}
	return steps, nil
}
