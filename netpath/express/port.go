package express

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/quantity"
)

// kindPort is a device whose frames the program hands over, and its entry in the table, by which the programs
// of other devices find it. The values are a port as JSON.
const kindPort = "express"

// port is the host's end of a lane's device, or an uplink.
type port struct {
	Table string `json:"table"`
	// Lane is the MAC address inside, the only one that may send here, and without VLAN tags; "" at the uplink,
	// to which frames for nobody else in the table go.
	Lane string `json:"lane,omitempty"`
	// Sources are the IP addresses that the lane may send from; none: all, and frames of other protocols too.
	Sources []netip.Prefix `json:"sources,omitempty"`
	Router  bool           `json:"router,omitempty"` // it may say that it is one
	// Rate is the most that the lane sends; 0: as much as it can.
	Rate quantity.BitRate `json:"rate,omitempty"`
}

func (p port) step(device string) journal.Step {
	data, err := json.Marshal(p)
	if err != nil {
		panic(err) // plain data
	}
	return journal.Step{Kind: kindPort, Target: device, After: string(data)}
}

func parse(value string) (port, error) {
	var p port
	if err := json.Unmarshal([]byte(value), &p); err != nil {
		return p, fmt.Errorf("%q: expected a port in JSON", value)
	}
	if err := checkTable(p.Table); err != nil {
		return p, err
	}
	_, err := p.mac()
	return p, err
}

// String says whose frames go where.
func (p port) String() string {
	if p.Lane == "" {
		return "to lanes, those for others to here"
	}
	text := "to other lanes, those for " + p.Lane + " to here"
	if len(p.Sources) > 0 {
		text += fmt.Sprint(", from ", p.Sources)
	}
	if p.Rate > 0 {
		text += fmt.Sprint(", rate ", p.Rate)
	}
	return text
}

// ports attach the program to the ingress hook of a device, and take it off again with the hook (clsact).
type ports struct{}

// prefix is that of a filter's name. What follows are digests: of the value, by which Read knows it, and of
// the object that the program is from, by which InForce knows that of another version.
const prefix = "isolane-"

func filterName(value string) string { return prefix + netpath.Digest(value) + "-" }

// programName returns the filter's of this version.
func programName(value string) string { return filterName(value) + netpath.Digest(string(object)) }

// Check says what in a step cannot be.
func (ports) Check(s journal.Step) error {
	if err := netdev.CheckDevice(s.Target); err != nil {
		return err
	}
	for _, value := range []string{s.Before, s.After} {
		if value == "" || value == left {
			continue
		}
		if _, err := parse(value); err != nil {
			return fmt.Errorf("%s: %w", s.Target, err)
		}
	}
	return nil
}

// left is what Read returns where the device has gone, and its entry has not, or where a crash came between
// the hook and its program.
const left = "an entry or a hook without a program"

// Read returns the step's value, or the one that it replaces, where our filter for that is attached, and ""
// where there is nothing.
func (ports) Read(_ context.Context, s journal.Step) (string, error) {
	h, err := netdev.OpenHook(s.Target)
	if err != nil {
		return "", err
	}
	if h != nil {
		h.Close()
	}
	switch {
	case h != nil && own(h) != nil:
		for _, value := range values(s) {
			if strings.HasPrefix(own(h).Name, filterName(value)) {
				return value, nil
			}
		}
		fallthrough
	case h != nil && len(h.Filters) > 0:
		return "a tc filter that isolane did not attach", nil
	case h != nil && h.Qdisc != "":
		return left, nil
	}
	for _, value := range values(s) {
		if p, perr := parse(value); perr == nil {
			if _, is, err := p.entry(); is || err != nil {
				return left, err
			}
		}
	}
	return "", nil
}

// values returns those that a step's target may have.
func values(s journal.Step) []string {
	return slices.DeleteFunc([]string{s.Replaced, s.After, s.Before}, func(v string) bool { return v == "" })
}

// MayOverwrite says that what the kernel or a crash has left is ours.
func (ports) MayOverwrite(_ journal.Step, now string) bool { return now == left }

// entry returns the number of the device that the table has for the port.
func (p port) entry() (device uint32, is bool, err error) {
	key, err := p.mac()
	if err != nil {
		return 0, false, err
	}
	m, err := openTable(p.Table)
	if m == nil || err != nil {
		return 0, false, err
	}
	defer m.Close()
	err = m.Lookup(key, &device)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, false, nil
	}
	return device, err == nil, err
}

// InForce reports whether this version's program is attached with the table and meets frames first, and the
// table has the device by the number that it has now.
func (o ports) InForce(ctx context.Context, s journal.Step) (bool, error) {
	if now, err := o.Read(ctx, s); err != nil || now != s.After || now == "" {
		return now == s.After, err
	}
	p, err := parse(s.After)
	if err != nil {
		return false, err
	}
	h, err := netdev.OpenHook(s.Target)
	if h == nil || err != nil {
		return false, err
	}
	h.Close()
	is, err := p.attached(own(h), s.After)
	if !is || err != nil || overtaken(h) != nil {
		return false, err
	}
	device, is, err := p.entry()
	return is && device == uint32(h.Device.Attrs().Index), err
}

// attached reports whether a filter has this version's program, and that the table.
func (p port) attached(f *netlink.BpfFilter, value string) (bool, error) {
	if f == nil || f.Name != programName(value) {
		return false, nil
	}
	table, err := openTable(p.Table)
	if table == nil || err != nil {
		return false, err
	}
	defer table.Close()
	info, err := table.Info()
	if err != nil {
		return false, err
	}
	id, _ := info.ID()
	prog, err := ebpf.NewProgramFromID(ebpf.ProgramID(f.Id))
	if err != nil {
		return false, err
	}
	defer prog.Close()
	used, err := prog.Info()
	if err != nil {
		return false, err
	}
	ids, _ := used.MapIDs()
	return slices.Contains(ids, id), nil
}

// Write attaches the program, in place of one that is ours, and makes the entry; or takes the entry away and
// then the program ("").
func (o ports) Write(_ context.Context, s journal.Step, value string) error {
	if value == "" || value == left {
		return o.remove(s)
	}
	p, err := parse(value)
	if err != nil {
		return err
	}
	if was, perr := parse(s.Replaced); perr == nil && (was.Table != p.Table || was.Lane != p.Lane) {
		if err = was.forget(); err != nil {
			return err
		}
	}
	h, err := netdev.OpenHook(s.Target)
	if h == nil || err != nil {
		return cmp.Or(err, netdev.Missing("", s.Target))
	}
	defer h.Close()
	if len(h.Filters) > 0 && own(h) == nil {
		return fmt.Errorf("%s has a tc filter that isolane did not attach", s.Target)
	}
	if err = overtaken(h); err != nil { // a lane in force waits, so that others may change
		return &journal.UnansweredError{Err: err}
	}
	table, err := openTable(p.Table)
	if err == nil && table == nil {
		err = fmt.Errorf("there is no table %s", p.Table)
	}
	if err != nil {
		return err
	}
	defer table.Close()
	is, err := p.attached(own(h), value)
	if err == nil && !is {
		err = p.attach(h, table, value)
	}
	if err != nil {
		return err
	}
	key, err := p.mac()
	if err == nil {
		err = table.Put(key, uint32(h.Device.Attrs().Index))
	}
	return err
}

// attach puts the program at the hook of a device. It takes the place of one of ours between two frames.
func (p port) attach(h *netdev.Hook, table *ebpf.Map, value string) error {
	prog, err := p.load(table)
	if err != nil {
		return err
	}
	defer prog.Close()
	return h.Attach(prog, programName(value))
}

// remove takes the entry of a step's values away, and then our program with its hook.
func (ports) remove(s journal.Step) error {
	for _, value := range values(s) {
		if p, err := parse(value); err == nil {
			if err = p.forget(); err != nil {
				return err
			}
		}
	}
	h, err := netdev.OpenHook(s.Target)
	if h == nil || err != nil {
		return err
	}
	defer h.Close()
	return h.Detach(own(h))
}

// forget takes the port's entry away.
func (p port) forget() error {
	key, err := p.mac()
	if err != nil {
		return err
	}
	m, err := openTable(p.Table)
	if m == nil || err != nil {
		return err
	}
	defer m.Close()
	if err = m.Delete(key); errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// Name says what it is.
func (ports) Name(s journal.Step) string { return "frames that enter " + s.Target }

// Describe says where the frames go.
func (o ports) Describe(s journal.Step) (name, from, to string) {
	return o.Name(s), words(s.Before), words(s.After)
}

func words(value string) string {
	if p, err := parse(value); err == nil {
		return p.String()
	}
	return value
}

// DescribeDrift says what is no longer as it was made.
func (ports) DescribeDrift(s journal.Step) (expected, found string) {
	found = words(s.Before)
	if s.Before == s.After {
		found = "a program of another version, or another table or entry"
		if h, err := netdev.OpenHook(s.Target); h != nil && err == nil {
			h.Close()
			if err = overtaken(h); err != nil {
				found = err.Error()
			}
		}
	}
	return words(s.After), found
}

// Shell returns a command of tc-bpf(8), which cannot set the program's constants.
func (ports) Shell(s journal.Step) string {
	if s.After == "" {
		return "tc qdisc del dev " + s.Target + " clsact"
	}
	return "tc qdisc add dev " + s.Target + " clsact # with isolane's program: frames " + words(s.After)
}
