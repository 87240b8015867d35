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

// kindPort is an interface of VPP's; the target is its name, the values are a port as JSON.
const kindPort = "vpp-port"

// port is an interface of VPP's: one that Isolane makes at a device of the kernel or for tags of another one,
// or else VPP's own.
type port struct {
	Name   string    `json:"name"`
	Device string    `json:"device,omitempty"` // a packet socket at this device of the kernel
	Parent string    `json:"parent,omitempty"` // a sub-interface of this one
	VLAN   lane.VLAN `json:"vlan,omitzero"`    // whose tags it takes off; none: it drops all other tags
	// Domain is the bridge domain that has it as a port, 0 none. VPP makes it with its first port.
	Domain int `json:"domain,omitempty"`
}

// atDevice returns the interface at a device of the kernel.
func atDevice(device string, domain int) port {
	return port{Name: "host-" + device, Device: device, Domain: domain}
}

// below returns the sub-interface for tags. Nobody takes such numbers by hand: what has one is Isolane's.
func below(parent string, v lane.VLAN, domain int) port {
	return port{Name: fmt.Sprint(parent, ".", 1_000_000_000+10_000*v.Outer+v.Inner), Parent: parent, VLAN: v,
		Domain: domain}
}

// tags returns those of the sub-interface as VPP is told them, and how many they are. A frame must have
// exactly these.
func (p port) tags() (text string, count int) {
	switch v := p.VLAN; {
	case v.Inner > 0:
		return fmt.Sprintf("dot1ad %d inner-dot1q %d exact-match", v.Outer, v.Inner), 2
	case v.Outer > 0:
		return fmt.Sprintf("dot1q %d exact-match", v.Outer), 1
	}
	return "default", 0
}

// drops reports whether it is for frames with tags that no lane has: down, it takes them from its parent.
func (p port) drops() bool { return p.Parent != "" && p.Domain == 0 }

// String says what it is.
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

// check says whether it is one that Steps returns.
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

// mark returns the tag of VPP's that says that a packet socket is Isolane's, and at which device: one that
// was made anew under its name gets no frames by the old one.
func (p port) mark() string {
	device, err := net.InterfaceByName(p.Device)
	if err != nil {
		return ""
	}
	return fmt.Sprint(markPrefix, device.Index)
}

const markPrefix = "isolane-"

// made returns the tag that a packet socket has.
func (p port) made(ctx context.Context) (string, error) {
	out, err := ask(ctx, "show interface tag "+p.Name)
	return strings.TrimPrefix(out, p.Name+": "), err
}

// differs says what is not as it was made; "" where all is.
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

// commands make it, or set the one that is there as it was made. One that is stale goes first, with its
// sub-interfaces.
func (p port) commands(there, stale bool) (all []string) {
	tags, count := p.tags()
	if stale {
		all = append(all, p.removal()...)
	}
	switch anew := !there || stale; {
	case anew && p.Device != "":
		// v2 is TPACKET_V2: the third hands frames on by blocks, up to a millisecond late.
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

// removal takes it away, and before that the bridge domain, which VPP keeps as long as that has another port:
// where a crash comes between them, what is still there says that the domain may be, too.
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

// MayOverwrite lets a step be taken back of which it is not known whether it is in force.
func (portOp) MayOverwrite(_ journal.Step, now string) bool { return netpath.IsUnread(now) }

func parse(s journal.Step) (p port, err error) {
	if err = json.Unmarshal([]byte(cmp.Or(s.After, s.Before)), &p); err != nil {
		err = fmt.Errorf("%s: %q: expected an interface in JSON", s.Target, cmp.Or(s.After, s.Before))
	}
	return p, err
}

// Check says what in a step cannot be.
func (portOp) Check(s journal.Step) error {
	p, err := parse(s)
	if err != nil {
		return err
	}
	return p.check(s.Target)
}

// Read returns the step's value where there is an interface of its name, or that which it replaces where a
// crash has cut that off; of VPP's own where its bridge domain is there, with it or left by a crash.
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

// replaced returns the interface as an earlier step had it; none without one.
func replaced(s journal.Step) (p port) {
	_ = json.Unmarshal([]byte(s.Replaced), &p) // which Check has seen as an After
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
func (o portOp) InForce(ctx context.Context, s journal.Step) (bool, error) {
	what, err := o.differs(ctx, s)
	return what == "" && err == nil, err
}

// Write makes it, sets it as it was made, or takes it away.
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
	var leaves []string // domains of lanes that have gone, also of one that a crash took it out of
	for _, d := range []int{all[p.Name].bridge, replaced(s).Domain} {
		if now != "" && d >= firstDomain && d != p.Domain {
			leaves = append(leaves, leaving(p.Name, d)...)
		}
	}
	if err == nil && value == "" {
		return errors.Join(change(ctx, append(leaves, p.removal()...)...), p.setUp())
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

// setUp sets a device of the kernel up, as it was: VPP sets one down when it gives it back.
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

// Describe says what comes or goes.
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

// DescribeDrift says what is no longer as it was made.
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

// Shell is vppctl.
func (portOp) Shell(s journal.Step) string {
	p, _ := parse(s) // which Check has seen
	all := p.commands(false, false)
	if s.After == "" {
		all = p.removal()
	}
	return vppctl + " " + strings.Join(all, " && "+vppctl+" ")
}
