package netpath

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
)

// Auto stands for the best path that a host can make.
const Auto = "auto"

// Path brings packets to lanes: a driver.
type Path interface {
	Name() string
	// Declared says what of a declaration the path cannot do on any host, by its field.
	Declared(n lane.Network) error
	// Possible says why a lane cannot have the path on this host as it is now.
	Possible(l Lane) error
	// Steps returns all steps that make the path of these lanes, whatever is in force already.
	Steps(lanes []Lane) ([]journal.Step, error)
}

// Functional is a path whose lanes have virtual functions of the card that is their device for themselves.
// The card's own switch handles their frames and tags, and the card's own device loses nothing.
type Functional interface {
	// Functions returns how many virtual functions a lane has.
	Functions(n lane.Network) int
}

// Functions returns how many virtual functions of its device a lane needs for its path.
func Functions(paths []Path, n lane.Network) int {
	if p, is := Find(paths, n).(Functional); is {
		return p.Functions(n)
	}
	return 0
}

// Polled is a path whose frames reach the lane's sockets with the number of their receive queue (NAPI id).
// Without that no socket can poll (Documentation/networking/napi.rst, "Busy polling"). A bridge loses it: the
// kernel stores the sending CPU in the same place (sk_buff.sender_cpu).
type Polled interface{ Polled() }

func isPolled(p Path) bool {
	_, is := p.(Polled)
	return is
}

// Policed is a path that limits lanes to their rate where their frames enter the host or the card. With other
// paths a lane limits itself, in a queue of its own device.
type Policed interface{ Policed() }

// AnySource rejects sources, for paths that let a lane send from every address.
func AnySource(n lane.Network) error {
	if len(n.Sources) == 0 {
		return nil
	}
	return fmt.Errorf("spec.network.sources: path %s lets the lane send from every address: expected path "+
		"express", n.Path)
}

// Refuse says what of a lane none of the paths can do on any host, with a *lane.FieldError where no path
// could. It also returns the fields to leave out so that the lane is not refused for that; none if that does
// not help.
func Refuse(paths []Path, spec lane.Spec) (leave []string, err error) {
	n := spec.Network
	auto := n.Path == Auto && len(paths) > 0
	namespaced := Namespaced(paths, n)
	_, vhost := VhostUserOf(paths, Lane{Network: n})
	_, wrong := FindSwitch(paths, spec)
	switch p := Find(paths, n); {
	case wrong != nil:
		err = wrong
	case (p != nil && namespaced || auto) && spec.Cgroup.Path != "":
		err = errors.New("spec.cgroup.path: what runs there already keeps its network: expected none, or no " +
			"spec.network.path")
	case p != nil && n.VFs > 0 && Functions(paths, n) == 0:
		err = fmt.Errorf("spec.network.vfs: path %s has no virtual functions: expected none", n.Path)
	case p != nil && n.VF != (lane.VF{}) && Functions(paths, n) == 0:
		err = fmt.Errorf("spec.network.vf: path %s has no virtual functions: expected none, or path sriov", n.Path)
	case n.HasTap() && n.Queues > 0:
		err = errors.New("spec.network.queues: a tap has one: expected none")
	case n.HasTap() && vhost:
		err = fmt.Errorf("spec.network.driver: with path %s the workload speaks vhost-user: expected none", n.Path)
	case p != nil && n.Driver == lane.VFIO && Functions(paths, n) == 0, auto && n.Driver == lane.VFIO:
		err = fmt.Errorf("spec.network.driver: path %s gives no virtual function to drive: expected path sriov",
			n.Path)
	case p != nil && vhost && len(spec.Memory.Hugepages) == 0:
		err = fmt.Errorf("spec.memory.hugepages: with path %s the switch reads and writes the workload's memory: "+
			"expected some for it, such as {2Mi: 512Mi}", n.Path)
	case n.Driver != "" && spec.Scheduling.BusyPoll:
		err = fmt.Errorf("spec.scheduling.busyPoll: with driver %s the workload has no sockets that could poll: "+
			"expected none", n.Driver)
	case p != nil && spec.Scheduling.BusyPoll && !isPolled(p):
		err = fmt.Errorf("spec.scheduling.busyPoll: path %s gives the lane's frames no number of a receive queue, "+
			"so no socket would poll: expected path express, macvlan or sriov, or none", n.Path)
	case p != nil:
		err = p.Declared(n)
	case n.Path != "" && !auto:
		err = unknown(paths, "spec.network.path", n.Path)
	}
	if err != nil {
		field, _, _ := strings.Cut(err.Error(), ": ")
		leave = with(field, n)
	}
	return leave, err
}

// with returns the fields to leave out of a lane so that a field is no longer refused; none if leaving out
// does not help.
func with(field string, n lane.Network) (fields []string) {
	switch field {
	case "spec.network.device", "spec.memory.hugepages": // it is missing
		return nil
	case "spec.network.path":
	default:
		return []string{field}
	}
	for _, f := range []struct {
		name string
		set  bool
	}{{"path", n.Path != ""}, {"addresses", len(n.Addresses) > 0}, {"gateways", len(n.Gateways) > 0},
		{"sources", len(n.Sources) > 0}, {"mtu", n.MTU > 0}, {"rate", n.Rate > 0},
		{"vlan", n.VLAN != lane.VLAN{}}, {"vfs", n.VFs > 0}, {"vf", n.VF != lane.VF{}}, {"driver", n.Driver != ""},
		{"queues", n.Queues > 0 && n.Device == ""}, {"takeFromHost", n.TakeFromHost}} {
		if f.set {
			fields = append(fields, "spec.network."+f.name)
		}
	}
	return fields
}

// Find returns the path that a declaration names; nil if it names none of these.
func Find(paths []Path, n lane.Network) Path {
	if i := slices.IndexFunc(paths, func(p Path) bool { return p.Name() == n.Path }); i >= 0 {
		return paths[i]
	}
	return nil
}

// unknown says that a field names no path, or no switch, of this version.
func unknown(paths []Path, field, name string) error {
	known := cmp.Or(strings.Join(Choices(paths)[field], ", "), "none")
	return &lane.FieldError{Field: field, Text: fmt.Sprintf("expected %s, which this version has, found %.40q",
		known, name)}
}

// Choices returns, by field, the possible values of fields that name paths or switches.
func Choices(paths []Path) map[string][]string {
	names, switches := []string{Auto}, []string{}
	for _, p := range paths {
		names = append(names, p.Name())
		if s, is := p.(Switch); is && s.IsSwitch() {
			switches = append(switches, p.Name())
		}
	}
	slices.Sort(names)
	slices.Sort(switches)
	return map[string][]string{"spec.network.path": names, "spec.switch": switches}
}
