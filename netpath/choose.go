package netpath

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"isolane.dev/isolane/lane"
)

// Networks are the networks of a host's lanes on its uplinks.
type Networks struct {
	Root  fs.FS  // the host's root
	Paths []Path // that lanes may have; Best takes the first possible one
	// Free returns how many of a card's existing virtual functions a lane could have.
	Free  func(lane, device string) int
	lanes []Lane
}

// Add records that a lane has a network. A network without a path is ignored.
func (n *Networks) Add(name string, network lane.Network) {
	if network.Path != "" {
		n.lanes = append(n.lanes, Of(n.Root, name, network))
	}
}

// Possible says why this host cannot make the path of a lane now, or which lane added before has the same
// address on the same uplink.
func (n *Networks) Possible(name string, network lane.Network) error {
	path := Find(n.Paths, network)
	if path == nil {
		return nil
	}
	on := Of(n.Root, name, network)
	err := cmp.Or(PossibleTags(n.Root, path, on), FreeTags(path, on), possibleRate(on))
	if err == nil {
		err = path.Possible(on)
	}
	if err == nil {
		err = Beside(n.Paths, on, n.lanes)
	}
	if err != nil {
		return err
	}
	for _, other := range n.lanes {
		if other.MAC == on.MAC || Port(other.Name) == Port(on.Name) { // both are digests of the names
			return fmt.Errorf("metadata.name: %s and lane %s would have one MAC address or device: expected another "+
				"name", name, other.Name)
		}
		for _, a := range on.Addresses {
			if other.Uplink == on.Uplink && slices.ContainsFunc(other.Addresses,
				func(b lane.Address) bool { return a.Addr() == b.Addr() }) {
				return fmt.Errorf("spec.network.addresses: lane %s has %s", other.Name, a.Addr())
			}
		}
	}
	return nil
}

func names(paths []Path) (all []string) {
	for _, p := range paths {
		all = append(all, p.Name())
	}
	return all
}

const (
	reasonPrefix = "path by auto: "
	ratePrefix   = "rate: "
	accessPrefix = "access: "
)

// IsReason reports whether a reason of a lane comes from Best, RateReason or AccessReason.
func IsReason(reason string) bool {
	return slices.ContainsFunc([]string{reasonPrefix, ratePrefix, accessPrefix},
		func(prefix string) bool { return strings.HasPrefix(reason, prefix) })
}

// AccessReason says what a lane's switch may not do until somebody lets it; "" if nothing is known to be
// missing.
func AccessReason(paths []Path, l Lane) string {
	if p, is := Find(paths, l.Network).(UserSpace); is && p.Lacks(l) != "" {
		return accessPrefix + p.Lacks(l)
	}
	return ""
}

// RateReason says of a lane with a rate that its workload can exceed it; "" if the path enforces the rate.
func RateReason(paths []Path, n lane.Network) string {
	p := Find(paths, n)
	if _, is := p.(Policed); n.Rate == 0 || p == nil || is {
		return ""
	}
	return ratePrefix + "with path " + n.Path + " a workload with CAP_NET_RAW or CAP_NET_ADMIN can send more"
}

// Best returns the path for a lane that asks for the best one, and why. That is the path that it has already
// ("" for none), else the first that this host can make.
func (n *Networks) Best(name string, spec lane.Spec, has string) (path, reason string, err error) {
	paths := slices.Clone(n.Paths)
	if i := slices.IndexFunc(paths, func(p Path) bool { return p.Name() == has }); i > 0 {
		paths = slices.Insert(slices.Delete(paths, i, i+1), 0, n.Paths[i])
	}
	var not []string
	on := Of(n.Root, name, spec.Network).Device
	owned, through := owners(paths, on)
	for i, p := range paths {
		spec.Network.Path = p.Name()
		if !Namespaced(n.Paths, spec.Network) {
			not = append(not, "not "+p.Name()+": only for workloads that speak vhost-user")
			continue
		}
		if p.Name() != has && owned != "" && !slices.Contains(through, p.Name()) {
			not = append(not, fmt.Sprintf("not %s: %s is %s", p.Name(), on, owned))
			continue
		}
		_, err = Refuse(n.Paths, spec)
		if err == nil {
			err = n.Possible(name, spec.Network)
		}
		want := Functions(n.Paths, spec.Network)
		if err == nil && want > 0 && want > n.Free(name, spec.Network.Device) {
			err = fmt.Errorf("spec.network.device: %s has no free virtual function, and auto makes none",
				spec.Network.Device)
		}
		if err == nil {
			if behind := names(paths[i+1:]); p.Name() == has {
				not = append(not, "the lane has it already")
			} else if len(behind) > 0 {
				not = append(not, "not "+strings.Join(behind, ", ")+": behind it by docs/paths.md")
			}
			return p.Name(), strings.Join(append([]string{reasonPrefix + p.Name()}, not...), "; "), nil
		}
		not = append(not, "not "+p.Name()+": "+err.Error())
	}
	return "", "", errors.New("spec.network.path: auto: " + strings.Join(not, "; "))
}
