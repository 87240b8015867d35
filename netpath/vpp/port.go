package vpp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
)

// kindPort is an interface of VPP's. The target is its name; a value is a port as JSON.
const kindPort = "vpp-port"

// port is an interface of VPP's. Isolane makes it at a device of the kernel or for tags of another interface;
// else it is VPP's own.
type port struct {
	Name   string    `json:"name"`
	Device string    `json:"device,omitempty"` // a packet socket at this device of the kernel
	Parent string    `json:"parent,omitempty"` // a sub-interface of this interface
	VLAN   lane.VLAN `json:"vlan,omitzero"`    // the tags that it takes off; none: it drops all other tags
	// Domain is the bridge domain whose port it is; 0: none. VPP makes the domain with its first port.
	Domain int `json:"domain,omitempty"`
}

// atDevice returns the interface at a device of the kernel.
func atDevice(device string, domain int) port {
	return port{Name: "host-" + device, Device: device, Domain: domain}
}

// below returns the sub-interface for tags. Nobody chooses such numbers by hand, so an interface with one is
// Isolane's.
func below(parent string, v lane.VLAN, domain int) port {
	return port{Name: fmt.Sprint(parent, ".", 1_000_000_000+10_000*v.Outer+v.Inner), Parent: parent, VLAN: v,
		Domain: domain}
}

// tags returns the tags of the sub-interface in VPP's syntax, and their number. A frame must have exactly
// these.
func (p port) tags() (text string, count int) {
	switch v := p.VLAN; {
	case v.Inner > 0:
		return fmt.Sprintf("dot1ad %d inner-dot1q %d exact-match", v.Outer, v.Inner), 2
	case v.Outer > 0:
		return fmt.Sprintf("dot1q %d exact-match", v.Outer), 1
	}
	return "default", 0
}

// drops reports whether the interface is for frames with tags that no lane has: while down it takes them from
// its parent and drops them.
func (p port) drops() bool { return p.Parent != "" && p.Domain == 0 }

// String describes the interface.
func (p port) String() string {
	text := "VPP's own (tried with tunnels only)"
	switch tags, _ := p.tags(); {
	case p.drops():
		return "drops other tags of " + p.Parent
	case p.Parent != "":
		text = tags + " of " + p.Parent
	case p.Device != "":
		text = "at " + p.Device
	}
	if p.Domain > 0 {
		text += fmt.Sprint(", in bridge domain ", p.Domain)
	}
	return text
}

// check returns an error unless Steps could have returned the interface.
func (p port) check(target string) error {
	v, want := p.VLAN, port{Name: p.Name, Domain: p.Domain}
	switch {
	case p.Device != "":
		want = atDevice(p.Device, p.Domain)
	case p.Parent != "":
		want = below(p.Parent, v, p.Domain)
	}
	if p != want || p.Name != target || max(v.Outer, v.Inner) > 4094 ||
		!regexp.MustCompile(`^[A-Za-z][A-Za-z0-9/._-]*$`).MatchString(target) {
		return fmt.Errorf("%s is not the interface of %+v", target, p)
	}
	return nil
}

// mark returns the VPP tag that marks a packet socket as Isolane's, with its device. A device that was made
// anew under the same name gets no frames through the old socket.
func (p port) mark() string {
	device, err := net.InterfaceByName(p.Device)
	if err != nil {
		return ""
	}
	return fmt.Sprint(markPrefix, device.Index)
}

const markPrefix = "isolane-"

// made returns the VPP tag of a packet socket.
func (p port) made(ctx context.Context) (string, error) {
	out, err := ask(ctx, "show interface tag "+p.Name)
	return strings.TrimPrefix(out, p.Name+": "), err
}

// differs says how the interface differs from how it was made; "" if it does not.
func (p port) differs(ctx context.Context, all map[string]face) (string, error) {
	f, there := all[p.Name]
	switch _, tags := p.tags(); {
	case !there:
		return "none", nil
	case p.Device != "":
		if made, err := p.made(ctx); err != nil || made != p.mark() {
			return "at a device that is gone", err
		}
	case tags > 0:
		out, err := ask(ctx, "show interface vtr "+p.Name)
		if err != nil || !strings.Contains(out, fmt.Sprint("pop-", tags)) {
			return "tags not taken off", err
		}
	}
	switch {
	case f.up == p.drops():
		return map[bool]string{true: "up", false: "down"}[f.up], nil
	case f.bridge != p.Domain:
		return fmt.Sprint("in bridge domain ", f.bridge), nil
	}
	return "", nil
}

// commands returns the commands that make the interface, or set an existing one up again. A stale one is
// removed first, with its sub-interfaces.
func (p port) commands(there, stale bool) (all []string) {
	tags, count := p.tags()
	if stale {
		all = append(all, p.removal()...)
	}
	switch anew := !there || stale; {
	case anew && p.Device != "":
		// v2 is TPACKET_V2: version 3 passes frames on in blocks, up to a millisecond late.
		all = append(all, "create host-interface v2 name "+p.Device,
			"set interface tag "+p.Name+" "+p.mark())
	case anew && p.Parent != "":
		all = append(all, fmt.Sprintf("create sub-interfaces %s %s %s", p.Parent,
			strings.TrimPrefix(p.Name, p.Parent+"."), tags))
	}
	if p.drops() {
		return append(all, "set interface state "+p.Name+" down")
	}
	if p.Domain > 0 {
		all = append(all, fmt.Sprintf("set interface l2 bridge %s %d", p.Name, p.Domain))
	} else {
		all = append(all, "set interface l3 "+p.Name)
	}
	if count > 0 {
		all = append(all, fmt.Sprintf("set interface l2 tag-rewrite %s pop %d", p.Name, count))
	}
	return append(all, "set interface state "+p.Name+" up")
}

// removal returns the commands that remove the bridge domain, unless it has other ports, and then the
// interface. After a crash in between, the interface that is left shows that the domain may be left too.
func (p port) removal() (all []string) {
	if p.Domain > 0 {
		all = leaving(p.Name, p.Domain)
	}
	switch {
	case p.Device != "":
		all = append(all, "delete host-interface name "+p.Device)
	case p.Parent != "":
		all = append(all, "delete sub-interface "+p.Name)
	}
	return all
}

func leaving(name string, domain int) []string {
	return []string{"set interface l3 " + name, fmt.Sprintf("create bridge-domain %d del", domain)}
}

// Ops returns the operations of all kinds.
func Ops() map[string]journal.Op {
	return map[string]journal.Op{kindPort: portOp{&reader{}}, kindStartup: startupOp{}, kindThreads: threadsOp{}}
}

type portOp struct{ reader *reader }

// MayOverwrite lets a step be undone whose state is unknown.
func (portOp) MayOverwrite(_ journal.Step, now string) bool { return netpath.IsUnread(now) }

func parse(s journal.Step) (p port, err error) {
	if err = json.Unmarshal([]byte(cmp.Or(s.After, s.Before)), &p); err != nil {
		err = fmt.Errorf("%s: %q: expected an interface in JSON", s.Target, cmp.Or(s.After, s.Before))
	}
	return p, err
}

// Check says what in a step is impossible.
func (portOp) Check(s journal.Step) error {
	p, err := parse(s)
	if err != nil {
		return err
	}
	return p.check(s.Target)
}

// Read returns the step's value if there is an interface of its name, or Replaced if a crash has interrupted
// the step. An interface of VPP's own counts as present if its bridge domain exists, with it or left by a
// crash.
func (o portOp) Read(ctx context.Context, s journal.Step) (string, error) {
	all, err := o.reader.faces(ctx)
	if errors.As(err, new(notRunning)) {
		return "", nil
	}
	if err != nil {
		return netpath.Unread(ctx, err)
	}
	p, err := parse(s)
	f, there := all[s.Target]
	if err != nil || !there {
		return "", err
	}
	has := func(domain int) bool {
		if domain == 0 || f.bridge > 0 {
			return domain > 0 && f.bridge == domain
		}
		var out string
		out, err = ask(ctx, fmt.Sprint("show bridge-domain ", domain))
		return !strings.Contains(out, "No such bridge domain")
	}
	switch former := replaced(s); {
	case former.Domain != p.Domain && has(former.Domain):
		return s.Replaced, err
	case p.Device+p.Parent == "" && f.bridge == 0 && !has(p.Domain):
		return "", err
	}
	return cmp.Or(s.After, s.Before), err
}

// replaced returns the interface of an earlier step; none without one.
func replaced(s journal.Step) (p port) {
	_ = json.Unmarshal([]byte(s.Replaced), &p) // Check has accepted it as an After
	return p
}

func (o portOp) differs(ctx context.Context, s journal.Step) (string, error) {
	p, err := parse(s)
	if err != nil {
		return "", err
	}
	all, err := o.reader.faces(ctx)
	what := ""
	if err == nil {
		what, err = p.differs(ctx, all)
	}
	if errors.As(err, new(notRunning)) {
		return err.Error(), nil
	}
	if err != nil {
		return netpath.Unread(ctx, err)
	}
	return what, nil
}

// InForce reports whether all is as it was made.
func (o portOp) InForce(ctx context.Context, s journal.Step, _ string) (bool, error) {
	what, err := o.differs(ctx, s)
	return what == "" && err == nil, err
}

// Write makes the interface, sets it up again, or removes it.
func (o portOp) Write(ctx context.Context, s journal.Step, value string) error {
	p, err := parse(s)
	if err != nil {
		return err
	}
	o.reader.forget()
	defer o.reader.forget()
	now, err := o.Read(ctx, s)
	if err != nil || value == "" && now == "" {
		return err
	}
	all, err := o.reader.faces(ctx)
	var leaves []string // domains of lanes that have gone, also one that a crash took the interface out of
	for _, d := range []int{all[p.Name].bridge, replaced(s).Domain} {
		if now != "" && d >= firstDomain && d != p.Domain {
			leaves = append(leaves, leaving(p.Name, d)...)
		}
	}
	if err == nil && value == "" {
		return errors.Join(change(ctx, append(leaves, p.removal()...)...), p.setUp())
	}
	if errors.As(err, new(notRunning)) { // the next VPP gets it, and lanes that are not VPP's do not wait
		err = &journal.UnansweredError{Err: err}
	}
	if err != nil {
		return err
	}
	if _, _, err = version(ctx); err != nil {
		return err
	}
	stale := false
	if now != "" && p.Device != "" {
		made, merr := p.made(ctx)
		if merr != nil {
			return merr
		}
		stale = made != p.mark()
	}
	return change(ctx, append(leaves, p.commands(now != "", stale)...)...)
}

// setUp sets a device of the kernel up again: VPP sets it down when it releases it.
func (p port) setUp() error {
	if p.Device == "" {
		return nil
	}
	h, device, err := netdev.Find("", p.Device)
	if device == nil || err != nil {
		return err
	}
	defer h.Close()
	return h.LinkSetUp(device)
}

// Name says what it is.
func (portOp) Name(s journal.Step) string { return "VPP interface " + s.Target }

// Describe says what appears or disappears.
func (o portOp) Describe(s journal.Step) (name, from, to string) {
	p, err := parse(s)
	switch {
	case err != nil:
		return o.Name(s), s.Before, s.After
	case s.After == "":
		return o.Name(s), p.String(), ""
	}
	return o.Name(s), "", p.String() + untested(context.Background())
}

// DescribeDrift says what differs from how it was made.
func (o portOp) DescribeDrift(s journal.Step) (expected, found string) {
	if p, err := parse(s); err == nil {
		expected = p.String()
	}
	found, err := o.differs(context.Background(), s)
	if err != nil {
		found = err.Error()
	}
	return expected, found
}

// Shell returns vppctl commands.
func (portOp) Shell(s journal.Step) string {
	p, _ := parse(s) // Check has accepted it
	all := p.commands(false, false)
	if s.After == "" {
		all = p.removal()
	}
	return vppctl + " " + strings.Join(all, " && "+vppctl+" ")
}
