package express

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/journal"
)

//go:embed bpf/express.o
var object []byte

// Kind is the kind of the steps that Op does.
const Kind = "express"

// table says where the frames go that enter a device. It is the value of a step, as JSON.
type table struct {
	Lanes  map[string]string `json:"lanes"`            // by the MAC address inside: the host's end
	Uplink string            `json:"uplink,omitempty"` // for all others; "": the bridge
	// From is the only MAC address that may send here, and without VLAN tags; "" at the uplink: any.
	From string `json:"from,omitempty"`
}

// of is the table at the host's end of the lane with that address.
func (t table) of(mac, port string) journal.Step {
	t.From = mac
	return t.step(port)
}

func (t table) step(device string) journal.Step {
	data, err := json.Marshal(t)
	if err != nil {
		panic(err) // plain data
	}
	return journal.Step{Kind: Kind, Target: device, After: string(data)}
}

func parse(value string) (table, error) {
	var t table
	if err := json.Unmarshal([]byte(value), &t); err != nil || len(t.Lanes) == 0 {
		return t, fmt.Errorf("%q: expected where the frames go, in JSON", value)
	}
	return t, nil
}

// String says where the frames go.
func (t table) String() string {
	others := "others to the bridge"
	if t.Uplink != "" {
		others = "others to " + t.Uplink
	}
	return "to " + strings.Join(slices.Sorted(maps.Values(t.Lanes)), ", ") + ", " + others
}

// mac is a key of the program's map.
type mac [6]byte

func parseMAC(text string) (mac, error) {
	m, err := net.ParseMAC(text)
	if err != nil || len(m) != len(mac{}) {
		return mac{}, fmt.Errorf("mac %q: expected six bytes", text)
	}
	return mac(m), nil
}

// numbers are the contents of the program's map: by MAC address the number of a device of the host.
func (t table) numbers(h *netlink.Handle) (map[mac]uint32, error) {
	all := map[mac]uint32{}
	add := func(m mac, device string) error {
		l, err := h.LinkByName(device)
		if err != nil {
			return fmt.Errorf("%s: %w", device, err)
		}
		all[m] = uint32(l.Attrs().Index)
		return nil
	}
	for address, device := range t.Lanes {
		m, err := parseMAC(address)
		if err == nil {
			err = add(m, device)
		}
		if err != nil {
			return nil, err
		}
	}
	if t.Uplink != "" {
		return all, add(mac{}, t.Uplink)
	}
	return all, nil
}

// Op attaches the program to the ingress hook of a device, and takes it off again with the hook (clsact).
type Op struct{}

// prefix is that of a filter's name; what follows is a digest of the value, by which Read knows it.
const prefix = "isolane-"

func filterName(value string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(value)) // never fails
	return fmt.Sprintf("%s%08x", prefix, h.Sum32())
}

// Check says what in a step cannot be.
func (Op) Check(s journal.Step) error {
	if err := netdev.CheckDevice(s.Target); err != nil {
		return err
	}
	for _, value := range []string{s.Before, s.After} {
		if value == "" {
			continue
		}
		if _, err := parse(value); err != nil {
			return fmt.Errorf("%s: %w", s.Target, err)
		}
	}
	return nil
}

// ingress finds a device of the host, and the tc filters where frames enter it. The caller closes the handle,
// where there is a device.
func ingress(device string) (*netlink.Handle, netlink.Link, []netlink.Filter, error) {
	h, l, err := netdev.Find("", device)
	if l == nil || err != nil {
		return nil, nil, nil, err
	}
	filters, err := h.FilterList(l, netlink.HANDLE_MIN_INGRESS)
	if err != nil {
		h.Close()
		return nil, nil, nil, err
	}
	return h, l, filters, nil
}

// free fails where somebody else has taken the hook of a device.
func free(device string) error {
	h, l, filters, err := ingress(device)
	if l == nil || err != nil {
		return err
	}
	defer h.Close()
	if own(filters) != nil {
		return nil
	}
	hooks, err := h.QdiscList(l)
	if err != nil {
		return err
	}
	for _, q := range hooks {
		if q.Attrs().Parent == netlink.HANDLE_CLSACT { // the ingress qdisc has the same
			return fmt.Errorf("spec.network.device: %s has a qdisc %s of somebody else, where express puts its own: "+
				"tc filter show dev %[1]s ingress shows what it does", device, q.Type())
		}
	}
	return nil
}

// own is our filter; nil: there is none.
func own(filters []netlink.Filter) *netlink.BpfFilter {
	for _, f := range filters {
		if b, ok := f.(*netlink.BpfFilter); ok && strings.HasPrefix(b.Name, prefix) {
			return b
		}
	}
	return nil
}

// Read returns the step's value, or the one that it replaces, where our filter for that is attached, and ""
// where none is.
func (Op) Read(_ context.Context, s journal.Step) (string, error) {
	h, l, filters, err := ingress(s.Target)
	if l == nil || err != nil {
		return "", err
	}
	h.Close()
	if len(filters) == 0 {
		return "", nil
	}
	if f := own(filters); f != nil {
		for _, value := range []string{s.Replaced, s.After, s.Before} {
			if value != "" && f.Name == filterName(value) {
				return value, nil
			}
		}
	}
	return "a tc filter that isolane did not attach", nil
}

// InForce says whether the program is attached and knows the devices by the numbers that they have now.
func (o Op) InForce(ctx context.Context, s journal.Step) (bool, error) {
	now, err := o.Read(ctx, s)
	if err != nil || now != s.After {
		return false, err
	}
	t, err := parse(s.After)
	if err != nil {
		return false, err
	}
	h, l, filters, err := ingress(s.Target)
	if l == nil || err != nil {
		return false, err
	}
	defer h.Close()
	wanted, err := t.numbers(h)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	found, err := contents(ebpf.ProgramID(own(filters).Id))
	return maps.Equal(found, wanted), err
}

// contents reads the map of a program.
func contents(id ebpf.ProgramID) (map[mac]uint32, error) {
	prog, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return nil, err
	}
	defer prog.Close()
	info, err := prog.Info()
	if err != nil {
		return nil, err
	}
	all := map[mac]uint32{}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, err
		}
		if m.Type() == ebpf.Hash { // the other holds the constants
			var key mac
			var device uint32
			i := m.Iterate()
			for i.Next(&key, &device) {
				all[key] = device
			}
			err = i.Err()
		}
		if err = errors.Join(err, m.Close()); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Write attaches the program with a table, in place of one that is ours, or detaches it ("").
func (o Op) Write(ctx context.Context, s journal.Step, value string) error {
	now, err := o.Read(ctx, s)
	if err != nil {
		return err
	}
	h, l, filters, err := ingress(s.Target)
	if err != nil || l == nil {
		return errors.Join(err, fs.ErrNotExist)
	}
	defer h.Close()
	hook := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index,
		Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
	switch ours := own(filters); {
	case now != "" && ours == nil:
		return fmt.Errorf("%s has %s", s.Target, now)
	case value == "" && ours == nil:
		return nil
	case value == "" && len(filters) > 1: // somebody has added one to our hook
		return h.FilterDel(ours)
	case value == "":
		return h.QdiscDel(hook)
	}
	prog, err := load(h, value)
	if err != nil {
		return err
	}
	defer prog.Close()
	if now == "" {
		if err = h.QdiscAdd(hook); err != nil {
			return fmt.Errorf("clsact: %w", err)
		}
	}
	return h.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: l.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS,
			Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL},
		Fd: prog.FD(), Name: filterName(value), DirectAction: true,
	})
}

// load puts the program with its table into the kernel.
func load(h *netlink.Handle, value string) (*ebpf.Program, error) {
	t, err := parse(value)
	if err != nil {
		return nil, err
	}
	numbers, err := t.numbers(h)
	if err != nil {
		return nil, err
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		return nil, err
	}
	ports := spec.Maps["ports"]
	ports.MaxEntries = uint32(len(numbers))
	for m, device := range numbers {
		ports.Contents = append(ports.Contents, ebpf.MapKV{Key: m, Value: device})
	}
	if t.From != "" {
		from, perr := parseMAC(t.From)
		if perr == nil {
			perr = spec.Variables["from"].Set(from)
		}
		if perr != nil {
			return nil, perr
		}
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	return coll.DetachProgram("express"), nil
}

// Name says what it is.
func (Op) Name(s journal.Step) string { return "frames that enter " + s.Target }

// Describe says where the frames go.
func (o Op) Describe(s journal.Step) (name, from, to string) {
	return o.Name(s), words(s.Before), words(s.After)
}

func words(value string) string {
	if t, err := parse(value); err == nil {
		return t.String()
	}
	return value
}

// DescribeDrift says what is no longer as it was made.
func (Op) DescribeDrift(s journal.Step) (expected, found string) {
	found = words(s.Before)
	if s.Before == s.After {
		found = "devices that are no longer there"
	}
	return words(s.After), found
}

// Shell is tc-bpf(8), which cannot fill the program's table.
func (Op) Shell(s journal.Step) string {
	if s.After == "" {
		return "tc qdisc del dev " + s.Target + " clsact"
	}
	return "tc qdisc add dev " + s.Target + " clsact # with isolane's program: frames " + words(s.After)
}
