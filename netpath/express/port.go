package express

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
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

// kindPort is a device whose frames the program passes on, and its entry in the table, by which the programs
// of other devices find it. A value is a port as JSON.
const kindPort = "express"

// port is the host's end of a lane's device, or an uplink.
type port struct {
	Table string `json:"table"`
	// Lane is the MAC address inside, the only one that may send here, and only without VLAN tags. It is "" for
	// the uplink, which gets frames for nobody in the table.
	Lane string `json:"lane,omitempty"`
	// Sources are the IP addresses that the lane may send from; none: any, and frames of other protocols too.
	Sources []netip.Prefix `json:"sources,omitempty"`
	Router  bool           `json:"router,omitempty"` // it may announce itself as a router
	// Rate limits what the lane sends; 0: no limit.
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

// ports attaches the program to the ingress hook of a device, and removes it with the hook (clsact).
type ports struct{}

// prefix begins a filter's name. Two digests follow: of the value, by which Read knows it, and of the
// program's object, by which InForce recognizes another version.
const prefix = "isolane-"

func filterName(value string) string { return prefix + netpath.Digest(value) + "-" }

// programName returns the name of this version's filter.
func programName(value string) string { return filterName(value) + netpath.Digest(string(object)) }

// Check says what in a step is impossible.
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

// left is the value of what remains if the device has gone but its entry has not, or if a crash came between
// the hook and its program.
const left = "an entry or a hook without a program"

// Read returns After or Replaced if Isolane's filter for that value is attached, and "" if there is nothing.
func (ports) Read(_ context.Context, s journal.Step) (string, error) {
	_, now, err := read(s)
	return now, err
}

// read is Read, and returns the hook, which is closed; nil if there is no device.
func read(s journal.Step) (h *netdev.Hook, now string, err error) {
	if h, err = netdev.OpenHook(s.Target); err != nil {
		return nil, "", err
	}
	if h != nil {
		h.Close()
	}
	switch {
	case h != nil && own(h) != nil:
		for _, value := range values(s) {
			if strings.HasPrefix(own(h).Name, filterName(value)) {
				return h, value, nil
			}
		}
		fallthrough
	case h != nil && len(h.Filters) > 0:
		return h, "a tc filter that isolane did not attach", nil
	case h != nil && h.Qdisc != "":
		return h, left, nil
	}
	for _, value := range values(s) {
		if p, perr := parse(value); perr == nil {
			if is, err := p.known(); is || err != nil {
				return h, left, err
			}
		}
	}
	return h, "", nil
}

// values returns the values that a step's target may have.
func values(s journal.Step) []string {
	return slices.DeleteFunc([]string{s.Replaced, s.After, s.Before}, func(v string) bool { return v == "" })
}

// MayOverwrite reports whether the kernel or a crash has left it. Then it is Isolane's.
func (ports) MayOverwrite(_ journal.Step, now string) bool { return now == left }

// known reports whether the table has the port.
func (p port) known() (bool, error) {
	table, err := openTable(p.Table)
	if table == nil || err != nil {
		return false, err
	}
	defer table.Close()
	entry, err := p.entry(table)
	return entry != nil, err
}

// entry returns what the table has of the port: nil if nothing.
func (p port) entry(table *ebpf.Map) ([]byte, error) {
	key, err := p.mac()
	if err != nil {
		return nil, err
	}
	return table.LookupBytes(key)
}

// entryWith returns what a table is to have of the port with that device: its number, and in bytes the
// longest frame for a lane, which tables of layout 1 do not have.
func (p port) entryWith(device netlink.Link, table *ebpf.Map) []byte {
	const head = 14 // ETH_HLEN
	a, longest := device.Attrs(), 0
	if p.Lane != "" { // an uplink's own MTU may change
		longest = head + a.MTU
	}
	entry := binary.NativeEndian.AppendUint32(nil, uint32(a.Index))
	entry = binary.NativeEndian.AppendUint32(entry, uint32(longest))
	return entry[:table.ValueSize()]
}

// Look reads the value, and whether this version's program is attached with the table and before any other,
// and the table has the present number and MTU of the device.
func (ports) Look(_ context.Context, s journal.Step) (inForce bool, now string, err error) {
	h, now, err := read(s)
	if err != nil || now != s.After || now == "" {
		return err == nil && now == s.After, now, err
	}
	inForce, err = whole(h, s.After)
	return inForce, now, err
}

// whole reports whether an attached program is this version's, with its table and its entry there.
func whole(h *netdev.Hook, value string) (bool, error) {
	p, err := parse(value)
	if err != nil {
		return false, err
	}
	if overtaken(h) != nil {
		return false, nil
	}
	table, err := openTable(p.Table)
	if table == nil || err != nil {
		return false, err
	}
	defer table.Close()
	is, err := attached(own(h), value, table)
	if !is || err != nil {
		return false, err
	}
	entry, err := p.entry(table)
	return bytes.Equal(entry, p.entryWith(h.Device, table)), err
}

// attached reports whether a filter has this version's program, with that table.
func attached(f *netlink.BpfFilter, value string, table *ebpf.Map) (bool, error) {
	if f == nil || f.Name != programName(value) {
		return false, nil
	}
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

// Write attaches the program, replacing one of Isolane's, and makes the entry. With "" it removes the entry
// and then the program.
func (o ports) Write(_ context.Context, s journal.Step, value string) error {
	if value == "" || value == left {
		return o.remove(s)
	}
	p, err := parse(value)
	if err != nil {
		return err
	}
	// A table of another layout has lost its name by now, and stays until its last program goes.
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
	if err = overtaken(h); err != nil { // a lane in force waits, so that changes of others go on
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
	is, err := attached(own(h), value, table)
	if err == nil && !is {
		err = p.attach(h, table, value)
	}
	if err != nil {
		return err
	}
	key, err := p.mac()
	if err == nil {
		err = table.Put(key, p.entryWith(h.Device, table))
	}
	return err
}

// attach puts the program at the hook of a device. It replaces one of Isolane's between two frames.
func (p port) attach(h *netdev.Hook, table *ebpf.Map, value string) error {
	prog, err := p.load(table)
	if err != nil {
		return err
	}
	defer prog.Close()
	return h.Attach(prog, programName(value))
}

// remove removes the entries of a step's values, and then Isolane's program with its hook.
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

// forget removes the port's entry.
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

// DescribeDrift says what differs from how it was made.
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

// Shell returns a tc-bpf(8) command. It cannot set the program's constants.
func (ports) Shell(s journal.Step) string {
	if s.After == "" {
		return "tc qdisc del dev " + s.Target + " clsact"
	}
	return "tc qdisc add dev " + s.Target + " clsact # with isolane's program: frames " + words(s.After)
}
