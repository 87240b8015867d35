package netdev

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/quantity"
)

// KindPolice drops what enters a device of the host above a rate, by a program at its ingress (tc-bpf(8)).
// The device is the host's end of a pair: the sender at the other end can bypass a queue there, but not this.
// The target is the device; a value is a rate, or "" for no limit.
const KindPolice = "police"

// PoliceStep returns the step that drops what enters a device above a rate. A kernel may lack such programs.
func PoliceStep(device string, r quantity.BitRate) journal.Step {
	return journal.Step{Kind: KindPolice, Target: device, After: wholeBytes(r), Optional: true}
}

//go:embed bpf/police.o
var policeObject []byte

// HoldTo sets the rate to which a program that includes bpf/police.h limits its frames; 0 is no limit. The
// program allows a twentieth more than the rate, and bursts of 100 milliseconds of the rate or two joined
// frames, whichever is more. So a sender that a queue already limits to the rate loses nothing.
func HoldTo(spec *ebpf.CollectionSpec, r quantity.BitRate) error {
	second := uint64(r / 8)
	second += second / 20
	const joined, nanosecond = 2 << 16, 1e9
	burst := max(uint64(nanosecond/10), joined*nanosecond/max(1, second))
	return errors.Join(spec.Variables["rate"].Set(second), spec.Variables["burst"].Set(burst))
}

type police struct{}

// policePrefix begins the name of Isolane's filter; path express uses no such name. The rate follows, in bits
// per second, and a hash of the program, by which InForce recognizes another version.
const policePrefix = "police-"

func policeName(r quantity.BitRate) string {
	return fmt.Sprintf("%s%d-%x", policePrefix, r, mark(string(policeObject)))
}

func (police) Check(s journal.Step) error { return errors.Join(CheckDevice(s.Target), checkRates(s)) }

func (police) Read(_ context.Context, s journal.Step) (string, error) {
	name, err := policing(s.Target)
	var r quantity.BitRate
	if _, serr := fmt.Sscanf(name, policePrefix+"%d-", &r); err != nil || serr != nil { // none of Isolane's
		return "", err
	}
	return r.String(), nil
}

// policing returns the name of the filter that polices a device; "" if there is none.
func policing(device string) (string, error) {
	h, err := OpenHook(device)
	if h == nil || err != nil {
		return "", err
	}
	defer h.Close()
	if f := h.Own(policePrefix); f != nil {
		return f.Name, nil
	}
	return "", nil
}

// InForce reports whether this version's program polices the device.
func (police) InForce(_ context.Context, s journal.Step, _ string) (bool, error) {
	name, err := policing(s.Target)
	if s.After == "" || err != nil {
		return name == "" && err == nil, err
	}
	r, err := quantity.ParseBitRate(s.After)
	return err == nil && name == policeName(r), err
}

func (police) Write(_ context.Context, s journal.Step, value string) error {
	h, err := OpenHook(s.Target)
	if h == nil || err != nil {
		return cmp.Or(err, Missing("", s.Target))
	}
	defer h.Close()
	if value == "" {
		return h.Detach(h.Own(policePrefix))
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
	return h.Attach(coll.Programs["police"], policeName(r))
}

// Name says which setting the step changes.
func (police) Name(s journal.Step) string { return "rate of what enters " + s.Target }

// Shell returns a tc-bpf(8) command. It cannot set the program's constants.
func (police) Shell(s journal.Step) string {
	if s.After == "" {
		return "tc qdisc del dev " + s.Target + " clsact"
	}
	return fmt.Sprintf("tc qdisc add dev %s clsact # with isolane's program: %s and a twentieth more may enter",
		s.Target, s.After)
}
