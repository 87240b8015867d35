package netdev

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/quantity"
)

// KindPolice drops what enters a device of the host above a rate, by a program at its ingress (tc-bpf(8)):
// who sends it, at the other end of the pair, can go round a queue of its own, but not round this. The target
// is the device, the values are a rate, or "" for none.
const KindPolice = "police"

// PoliceStep is the step that drops what enters a device above a rate. Kernels may have no such programs.
func PoliceStep(device string, r quantity.BitRate) journal.Step {
	return journal.Step{Kind: KindPolice, Target: device, After: wholeBytes(r), Optional: true}
}

//go:embed bpf/police.o
var policeObject []byte

// HoldTo has a program that includes bpf/police.h hold what it sees to a rate; 0 is any. It lets through a
// twentieth more, and at once what may have come together on its way, 100 milliseconds of the rate or two
// joined frames: who is kept to the rate by a queue does not meet it.
func HoldTo(spec *ebpf.CollectionSpec, r quantity.BitRate) error {
	second := uint64(r / 8)
	second += second / 20
	const joined, nanosecond = 2 << 16, 1e9
	burst := max(uint64(nanosecond/10), joined*nanosecond/max(1, second))
	return errors.Join(spec.Variables["rate"].Set(second), spec.Variables["burst"].Set(burst))
}

type police struct{}

// policing begins the name of our filter, and is no name of path express. The rate follows in bits a second,
// and which object the program is from, by which InForce knows that of another version.
const policing = "police-"

func policeName(r quantity.BitRate) string {
	return fmt.Sprintf("%s%d-%x", policing, r, mark(string(policeObject)))
}

func (police) Check(s journal.Step) error { return errors.Join(CheckDevice(s.Target), checkRates(s)) }

// policed finds a device, whose handle the caller closes, and the filter that polices it, nil where there is
// none.
func policed(device string) (*netlink.Handle, netlink.Link, *netlink.BpfFilter, error) {
	h, l, err := Find("", device)
	if l == nil || err != nil {
		return nil, nil, nil, err
	}
	f, err := atIngress(h, l, policing)
	if err != nil {
		h.Close()
	}
	return h, l, f, err
}

func (police) Read(_ context.Context, s journal.Step) (string, error) {
	h, l, f, err := policed(s.Target)
	if l == nil || err != nil {
		return "", err
	}
	h.Close()
	var r quantity.BitRate
	if f == nil {
		return "", nil
	}
	if _, err = fmt.Sscanf(f.Name, policing+"%d-", &r); err != nil { // not ours
		return "", nil
	}
	return r.String(), nil
}

// InForce says whether this version's program is there.
func (police) InForce(_ context.Context, s journal.Step) (bool, error) {
	h, l, f, err := policed(s.Target)
	if l == nil || err != nil {
		return s.After == "" && err == nil, err
	}
	h.Close()
	if s.After == "" || f == nil {
		return s.After == "" && f == nil, nil
	}
	r, err := quantity.ParseBitRate(s.After)
	return err == nil && f.Name == policeName(r), err
}

func (police) Write(_ context.Context, s journal.Step, value string) error {
	h, l, f, err := policed(s.Target)
	if l == nil || err != nil {
		return errors.Join(err, fs.ErrNotExist)
	}
	defer h.Close()
	if value == "" {
		return leaveIngress(h, l, f)
	}
	r, err := quantity.ParseBitRate(value)
	if err != nil {
		return err
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(policeObject))
	if err == nil {
		err = HoldTo(spec, r)
	}
	if err != nil {
		return err
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return err
	}
	defer coll.Close()
	return handIngress(h, l, coll.Programs["police"], policeName(r))
}

// atIngress is the filter, of those where frames enter a device, whose name begins so; nil: there is none.
func atIngress(h *netlink.Handle, l netlink.Link, prefix string) (*netlink.BpfFilter, error) {
	filters, err := h.FilterList(l, netlink.HANDLE_MIN_INGRESS)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // there is no clsact
		return nil, nil
	}
	for _, f := range filters {
		if b, is := f.(*netlink.BpfFilter); is && strings.HasPrefix(b.Name, prefix) {
			return b, err
		}
	}
	return nil, err
}

func clsact(l netlink.Link) netlink.Qdisc {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index,
		Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
}

// handIngress hands what enters a device to a program.
func handIngress(h *netlink.Handle, l netlink.Link, p *ebpf.Program, name string) error {
	if err := h.QdiscReplace(clsact(l)); err != nil {
		return fmt.Errorf("clsact: %w", err)
	}
	return h.FilterReplace(&netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{LinkIndex: l.Attrs().Index,
		Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL},
		Fd: p.FD(), Name: name, DirectAction: true})
}

// leaveIngress takes away a filter, if any, and the hook with it unless others have theirs there.
func leaveIngress(h *netlink.Handle, l netlink.Link, f *netlink.BpfFilter) error {
	qdiscs, err := h.QdiscList(l)
	if err != nil || !slices.ContainsFunc(qdiscs,
		func(q netlink.Qdisc) bool { return q.Attrs().Parent == netlink.HANDLE_CLSACT }) {
		return err
	}
	in, err := h.FilterList(l, netlink.HANDLE_MIN_INGRESS)
	out, oerr := h.FilterList(l, netlink.HANDLE_MIN_EGRESS)
	switch all := len(in) + len(out); {
	case err != nil || oerr != nil:
		return errors.Join(err, oerr)
	case all == 0 || all == 1 && f != nil:
		return h.QdiscDel(clsact(l))
	case f != nil:
		return h.FilterDel(f)
	}
	return nil
}

// Name says what is set.
func (police) Name(s journal.Step) string { return "rate of what enters " + s.Target }

// Shell is tc-bpf(8), which cannot set the program's constants.
func (police) Shell(s journal.Step) string {
	if s.After == "" {
		return "tc qdisc del dev " + s.Target + " clsact"
	}
	return fmt.Sprintf("tc qdisc add dev %s clsact # with isolane's program: %s and a twentieth more may enter",
		s.Target, s.After)
}
