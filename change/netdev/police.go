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

// policePrefix begins the name of our filter, and is no name of path express. The rate follows, in bits a
// second, and which object the program is from, by which InForce knows that of another version.
const policePrefix = "police-"

func policeName(r quantity.BitRate) string {
	return fmt.Sprintf("%s%d-%x", policePrefix, r, mark(string(policeObject)))
}

func (police) Check(s journal.Step) error { return errors.Join(CheckDevice(s.Target), checkRates(s)) }

func (police) Read(_ context.Context, s journal.Step) (string, error) {
	name, err := policing(s.Target)
	var r quantity.BitRate
	if _, serr := fmt.Sscanf(name, policePrefix+"%d-", &r); err != nil || serr != nil { // none, or not ours
		return "", err
	}
	return r.String(), nil
}

// policing is the name of the filter that polices a device; "": there is none.
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

// InForce says whether this version's program is there.
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
