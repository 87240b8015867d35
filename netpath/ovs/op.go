package ovs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"

	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/netpath"
)

// Kinds of the steps of Ops. The target of a bridge is its name; that of a port is the host's end of a lane's
// device.
const (
	KindBridge = "ovs-bridge"
	KindPort   = "ovs-port"
)

// part is a bridge or a port. As JSON it is the value of a step.
type part interface {
	check(target string) error
	// marked returns the mark of what has that name. there is false if nothing has. own means that none is
	// needed, because the device is a bridge of somebody else.
	marked(db database, target string) (mark string, there, own bool)
	// differs says how a part with the right mark differs from how it was made; "" if it does not.
	differs(ctx context.Context, r *reader, db database, target string) (string, error)
	make(ctx context.Context, db database, target, mark string) error
	remove(ctx context.Context, db database, target string) error
	shell(db database, target string) string
	fmt.Stringer
}

func step(kind, target string, p part) journal.Step {
	data, err := json.Marshal(p)
	if err != nil {
		panic(err) // plain data
	}
	return journal.Step{Kind: kind, Target: target, After: string(data)}
}

// parse reads the value of a step.
func parse(kind, value string) (p part, err error) {
	switch kind {
	case KindBridge:
		var b bridge
		err = json.Unmarshal([]byte(value), &b)
		p = b
	default:
		var o port
		err = json.Unmarshal([]byte(value), &o)
		p = o
	}
	if err != nil {
		err = fmt.Errorf("%q: expected a description in JSON", value)
	}
	return p, err
}

// Ops returns the operations of all kinds.
func Ops() map[string]journal.Op {
	by := asking{&reader{}}
	return map[string]journal.Op{KindBridge: op{by}, KindPort: op{by}, KindSocket: socketOp{},
		KindConfig: configOp{by}, KindRxq: rxqOp{by}}
}

// asking is an operation that asks Open vSwitch for the present state.
type asking struct{ reader *reader }

// MayOverwrite lets a step be undone whose state is unknown.
func (asking) MayOverwrite(_ journal.Step, now string) bool { return netpath.IsUnread(now) }

// op makes bridges and ports, and removes them.
type op struct{ asking }

// open reads what a step makes or removes, and the present state.
func (o op) open(ctx context.Context, s journal.Step) (part, database, error) {
	p, err := parse(s.Kind, cmp.Or(s.After, s.Before))
	if err != nil {
		return nil, database{}, err
	}
	db, err := o.reader.database(ctx)
	return p, db, err
}

// Check says what in a step is impossible.
func (op) Check(s journal.Step) error {
	p, err := parse(s.Kind, cmp.Or(s.After, s.Before))
	if err != nil {
		return err
	}
	return p.check(s.Target)
}

// Read returns the step's value if what exists has the mark of that value.
func (o op) Read(ctx context.Context, s journal.Step) (string, error) {
	p, db, err := o.open(ctx, s)
	if err != nil {
		return netpath.Unread(ctx, err)
	}
	return present(p, db, s), nil
}

func present(p part, db database, s journal.Step) string {
	found, there, own := p.marked(db, s.Target)
	switch {
	case own:
		return s.After
	case !there || leftover(found):
		return ""
	}
	for _, value := range []string{s.Replaced, s.After, s.Before} {
		if found == mark(value) {
			return value
		}
	}
	return "one that isolane did not make"
}

// InForce reports whether all is as it was made.
func (o op) InForce(ctx context.Context, s journal.Step, _ string) (bool, error) {
	what, err := o.differs(ctx, s)
	return what == "" && err == nil, err
}

func (o op) differs(ctx context.Context, s journal.Step) (string, error) {
	p, db, err := o.open(ctx, s)
	if err != nil {
		return netpath.Unread(ctx, err)
	}
	if now := present(p, db, s); now != s.After {
		return cmp.Or(now, "none"), nil
	}
	if _, _, own := p.marked(db, s.Target); own {
		return "", nil
	}
	what, err := p.differs(ctx, o.reader, db, s.Target)
	if err != nil {
		return netpath.Unread(ctx, err)
	}
	return what, nil
}

// Write makes what does not exist, sets up again what is Isolane's, or removes it.
func (o op) Write(ctx context.Context, s journal.Step, value string) error {
	o.reader.forget()
	defer o.reader.forget()
	wanted := strings.HasPrefix(value, "{")
	p, db, err := o.open(ctx, s)
	if !wanted && removed(err) {
		return removeTap(s.Target)
	}
	if err != nil {
		return err
	}
	if _, _, err = version(ctx); err != nil { // fail at once, before anything waits for it
		return err
	}
	found, there, _ := p.marked(db, s.Target)
	switch {
	case there && found == "":
		return fmt.Errorf("there is already %s, that isolane did not make", s.Target)
	case !wanted && !there:
		return nil
	case !wanted:
		return p.remove(ctx, db, s.Target)
	case there && !leftover(found) && found != mark(value):
		if err = p.remove(ctx, db, s.Target); err != nil {
			return err
		}
	}
	if p, err = parse(s.Kind, value); err != nil {
		return err
	}
	return p.make(ctx, db, s.Target, mark(value))
}

// removeTap removes the device that a bridge in user space leaves behind when its Open vSwitch is gone.
func removeTap(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err == nil && link.Type() == "tuntap" {
		err = netlink.LinkDel(link)
	}
	return err
}

// Name says which part it is.
func (op) Name(s journal.Step) string {
	return "Open vSwitch " + strings.TrimPrefix(s.Kind, "ovs-") + " " + s.Target
}

// Describe says what appears or disappears.
func (o op) Describe(s journal.Step) (name, from, to string) {
	if to = words(s.Kind, s.After); to != "" {
		to += untested(context.Background())
	}
	return o.Name(s), words(s.Kind, s.Before), to
}

// words describes a value for people.
func words(kind, value string) string {
	if p, err := parse(kind, value); err == nil {
		return p.String()
	}
	return value
}

// DescribeDrift says what differs from how it was made.
func (o op) DescribeDrift(s journal.Step) (expected, found string) {
	found, err := o.differs(context.Background(), s)
	if err != nil {
		found = err.Error()
	}
	return words(s.Kind, s.After), found
}

// Shell returns commands of ovs-vsctl(8) and ovs-ofctl(8). If the database does not answer, it assumes that
// nothing exists.
func (o op) Shell(s journal.Step) string {
	p, db, _ := o.open(context.Background(), s)
	switch {
	case p == nil || s.After == "" && s.Kind == KindBridge:
		return vsctl + " del-br " + s.Target
	case s.After == "":
		return vsctl + " del-port " + s.Target
	}
	return p.shell(db, s.Target)
}
