package express

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
)

//go:embed bpf/express.o
var object []byte

func collection() (*ebpf.CollectionSpec, error) {
	return ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
}

// mac is a key of the table.
type mac [6]byte

func (p port) mac() (mac, error) {
	if p.Lane == "" {
		return mac{}, nil
	}
	m, err := net.ParseMAC(p.Lane)
	if err != nil || len(m) != len(mac{}) {
		return mac{}, fmt.Errorf("mac %q: expected six bytes", p.Lane)
	}
	return mac(m), nil
}

// load loads the program for the port into the kernel.
func (p port) load(table *ebpf.Map) (*ebpf.Program, error) {
	key, err := p.mac()
	if err != nil {
		return nil, err
	}
	spec, err := collection()
	if err != nil {
		return nil, err
	}
	v := spec.Variables
	err = errors.Join(v["from"].Set(key), v["guarded"].Set(len(p.Sources) > 0), v["router"].Set(p.Router),
		netdev.HoldTo(spec, p.Rate))
	if err != nil {
		return nil, err
	}
	sources := spec.Maps["sources"]
	sources.MaxEntries = uint32(max(1, len(p.Sources)))
	for _, from := range p.Sources {
		sources.Contents = append(sources.Contents, ebpf.MapKV{Key: sourceOf(from), Value: uint8(1)})
	}
	coll, err := ebpf.NewCollectionWithOptions(spec,
		ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{"table": table}})
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	return coll.DetachProgram("express"), nil
}

// source is a key of the program's map of addresses.
type source struct {
	Length, Family uint32
	Address        [16]byte
}

func sourceOf(p netip.Prefix) source {
	s := source{Length: uint32(32 + p.Bits()), Family: unix.ETH_P_IP} // including the bits of the family
	if p.Addr().Is6() {
		s.Family = unix.ETH_P_IPV6
	}
	copy(s.Address[:], p.Addr().AsSlice())
	return s
}
