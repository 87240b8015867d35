// Package express is the path on which the host only hands frames over: an eBPF program at the
// host end of each veth pair redirects what enters it straight to the inside of the other one.
// Loading and attaching is the step kind of this package, so undo finds it.
package express

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/netpath"
)

//go:embed bpf/express.o
var object []byte

// Kind is the kind of the steps that Op does.
const Kind = "express"

// Path is the path "express".
type Path struct{}

// Name returns "express".
func (Path) Name() string { return "express" }

// Words say what it is.
func (Path) Words() string {
	return "the host only hands frames over, by eBPF from veth to veth"
}

// Connect returns what makes the path between the two ends.
func (Path) Connect(p netpath.Pair) ([]journal.Step, error) {
	steps, err := p.Ends("", true)
	if err != nil {
		return nil, err
	}
	for _, hop := range []struct{ from, to netpath.End }{{p.Client, p.Application}, {p.Application, p.Client}} {
		value, err := json.Marshal(redirect{Port: hop.to.Port, MAC: hop.to.MAC})
		if err != nil {
			return nil, err
		}
		steps = append(steps, journal.Step{Kind: Kind, Target: hop.from.Port, After: string(value)})
	}
	return steps, nil
}

// Supported says why this kernel cannot do it, or nil.
func (Path) Supported() error {
	err := features.HaveProgramHelper(ebpf.SchedCLS, asm.FnRedirectPeer)
	if err != nil {
		return fmt.Errorf("express needs bpf_redirect_peer (Linux 5.10): %w", err)
	}
	return nil
}

// redirect is the value of a step: where the frames go that enter the step's target.
type redirect struct {
	Port string `json:"port"` // the host end of the other pair
	MAC  string `json:"mac"`  // of the device inside
}

// Op attaches the program to the ingress hook of a host-side veth, and takes it off again with the
// hook (clsact).
type Op struct{}

// filter is the name of the tc filter; it ends with a digest of the value, by which Read knows it.
func filter(value string) string {
	sum := uint32(2166136261)
	for _, c := range []byte(value) {
		sum = (sum ^ uint32(c)) * 16777619
	}
	return fmt.Sprintf("isolane-%08x", sum)
}

// Check says what in a step cannot be.
func (Op) Check(s journal.Step) error {
	var to redirect
	if err := json.Unmarshal([]byte(s.After), &to); err != nil || to.Port == "" || s.Before != "" {
		return fmt.Errorf("%s: %q: expected where the frames go, in JSON", s.Target, s.After)
	}
	return nil
}

// Read returns the step's value where our filter is attached, and "" where none is.
func (Op) Read(_ context.Context, s journal.Step) (string, error) {
	h, l, err := netdev.Find("", s.Target)
	if l == nil || err != nil {
		return "", err
	}
	defer h.Close()
	filters, err := h.FilterList(l, netlink.HANDLE_MIN_INGRESS)
	if err != nil {
		return "", err
	}
	for _, f := range filters {
		if b, ok := f.(*netlink.BpfFilter); ok && b.Name == filter(s.After) {
			return s.After, nil
		}
	}
	if len(filters) > 0 {
		return "a tc filter that isolane did not attach", nil
	}
	return "", nil
}

// Write attaches (value is a redirect) or detaches ("").
func (Op) Write(_ context.Context, s journal.Step, value string) error {
	h, l, err := netdev.Find("", s.Target)
	if l == nil || err != nil {
		return errors.Join(err, fs.ErrNotExist)
	}
	defer h.Close()
	hook := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index,
		Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
	if value == "" {
		return h.QdiscDel(hook)
	}
	prog, err := load(h, value)
	if err != nil {
		return err
	}
	defer prog.Close()
	if err = h.QdiscAdd(hook); err != nil {
		return fmt.Errorf("clsact: %w", err)
	}
	return h.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: l.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS,
			Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL},
		Fd: prog.FD(), Name: filter(value), DirectAction: true,
	})
}

// load puts the program with its constants into the kernel.
func load(h *netlink.Handle, value string) (*ebpf.Program, error) {
	var r redirect
	if err := json.Unmarshal([]byte(value), &r); err != nil {
		return nil, err
	}
	to, err := h.LinkByName(r.Port)
	if err != nil {
		return nil, err
	}
	mac, err := net.ParseMAC(r.MAC)
	if err != nil || len(mac) != 6 {
		return nil, fmt.Errorf("mac %q: expected six bytes", r.MAC)
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		return nil, err
	}
	if err = spec.Variables["port"].Set(uint32(to.Attrs().Index)); err != nil {
		return nil, err
	}
	if err = spec.Variables["mac"].Set([6]byte(mac)); err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	return coll.DetachProgram("express"), nil
}
