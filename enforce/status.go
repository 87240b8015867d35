package enforce

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
)

// Status is what is in force, and what of it has drifted: the output of `isolane status -o json`.
type Status struct {
	APIVersion   string        `json:"apiVersion"`
	Kind         string        `json:"kind"` // Status
	Lanes        []LaneStatus  `json:"lanes"`
	Housekeeping string        `json:"housekeeping"`
	Settings     int           `json:"settings"` // settings of the host that are changed for the lanes
	Drift        []Drift       `json:"drift"`
	Refused      []RefusedStep `json:"refused"`
	// Unrecorded are cgroups of Isolane that are in no journal, see Lanes.Unrecorded.
	Unrecorded []string `json:"unrecorded"`
}

// LaneStatus is a lane in force.
type LaneStatus struct {
	Name        string `json:"name"`
	CPUs        string `json:"cpus"`
	Idle        string `json:"idle,omitempty"`
	MemoryNodes string `json:"memoryNodes"`
	Group       string `json:"group"`
	Own         bool   `json:"own,omitempty"` // Group is the workload's own cgroup
	// Missing is the cgroup that the declaration names, if none of its processes is in the lane.
	Missing    string           `json:"missingGroup,omitempty"`
	Balance    string           `json:"balance"`             // what spreads the threads over the CPUs
	Partition  string           `json:"partition,omitempty"` // cgroup v2, in the kernel's words
	Processes  int              `json:"processes"`           // in its cgroup
	Attached   []AttachedStatus `json:"attached,omitempty"`
	Network    *NetworkStatus   `json:"network,omitempty"` // of a lane with a network path
	Objectives []lane.Judgement `json:"objectives,omitempty"`
	Proof      *lane.Proof      `json:"proof,omitempty"` // the last one, whether it is still valid or not
	// Abandoned: the isolane run that made the lane for its command has ended without releasing it.
	Abandoned bool `json:"abandoned,omitempty"`
}

// AttachedStatus is a workload that was running before it came into the lane: a cgroup or a process.
type AttachedStatus struct {
	Group string `json:"group,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Moved bool   `json:"moved,omitempty"` // out of its cgroup, into the lane's
}

// NetworkStatus is how packets reach a lane's workload.
type NetworkStatus struct {
	lane.Network
	Namespace string   `json:"namespace,omitempty"` // of the workload, by its name for ip-netns(8)
	Interface string   `json:"interface,omitempty"` // the device in the namespace
	Socket    string   `json:"socket,omitempty"`    // if the workload speaks vhost-user
	PCI       []string `json:"pci,omitempty"`       // functions that the workload drives itself
	// Uplink says why the device carries no frames: gone, down or no carrier; "" if it may carry frames.
	Uplink  string           `json:"uplink,omitempty"`
	Traffic *netpath.Traffic `json:"traffic,omitempty"`
}

// networkStatus returns nil if a lane has no network path.
func (l *Lanes) networkStatus(ctx context.Context, placed plan.Lane) (*NetworkStatus, error) {
	if placed.Spec.Network.Path == "" {
		return nil, nil
	}
	t, err := l.Traffic(ctx, placed)
	if errors.Is(err, fs.ErrPermission) { // needs root
		err = nil
	}
	s := &NetworkStatus{Network: placed.Spec.Network, Traffic: t}
	up, uerr := netpath.UplinkState(l.paths, l.On(placed))
	s.Uplink, err = up, errors.Join(err, uerr)
	if v, is := netpath.VhostUserOf(l.paths, l.On(placed)); is {
		s.Socket = v.Socket
	} else if netpath.Namespaced(l.paths, placed.Spec.Network) {
		s.Namespace, s.Interface = l.On(placed).Netns(), netpath.Device
		if placed.Spec.Network.HasTap() {
			s.Interface = netdev.TapOf(netpath.Device)
		}
	} else {
		s.PCI = placed.OwnFunctions()
	}
	return s, err
}

// Traffic returns what the path of a lane has carried, or nil if what the path is made of is gone.
func (l *Lanes) Traffic(ctx context.Context, placed plan.Lane) (*netpath.Traffic, error) {
	return netpath.TrafficOf(ctx, l.paths, l.On(placed))
}

// On returns a lane as its path sees it.
func (l *Lanes) On(placed plan.Lane) netpath.Lane {
	on := netpath.Of(l.root, placed.Name, placed.Spec.Network)
	on.Functions, on.Workload = netpath.FunctionsOf(host.Host{}, placed), l.Netns(placed.Name)
	return on
}

// Settled reports whether all is as the lanes want it.
func (s Status) Settled() bool {
	return len(s.Drift) == 0 && len(s.Unrecorded) == 0 &&
		!slices.ContainsFunc(s.Lanes, func(l LaneStatus) bool { return l.Abandoned })
}

// Status returns what is in force. It changes nothing.
func (l *Lanes) Status(ctx context.Context) (Status, error) {
	s := Status{APIVersion: plan.APIVersion, Kind: "Status", Lanes: []LaneStatus{}, Drift: []Drift{},
		Refused: []RefusedStep{}, Unrecorded: []string{}, Housekeeping: l.Placement.Housekeeping.String(),
		Settings: l.Settings()}
	s.Refused = append(s.Refused, l.Refused...)
	drift, err := l.Drift(ctx)
	if err != nil {
		return s, err
	}
	s.Drift = append(s.Drift, drift...)
	unrecorded, err := l.Unrecorded()
	if err != nil {
		return s, err
	}
	s.Unrecorded = append(s.Unrecorded, unrecorded...)
	running, err := l.Running(ctx)
	if err != nil {
		return s, err
	}
	groups, err := l.Groups()
	for _, g := range groups {
		net, nerr := l.networkStatus(ctx, g.Lane)
		err = errors.Join(err, nerr)
		s.Lanes = append(s.Lanes, LaneStatus{Name: g.Lane.Name, CPUs: g.Lane.CPUs.String(),
			Idle: g.Lane.Idle.String(), MemoryNodes: g.Lane.MemoryNodes.String(), Group: g.Dir, Own: g.Own,
			Balance: g.Balance, Partition: g.Partition, Processes: g.Processes,
			Attached: attachedTo(g.Lane.Name, running, g.Partition != ""),
			Network:  net, Objectives: unprovenBounds(g.Lane.Spec.Objective), Abandoned: l.isAbandoned(g.Lane.Name)})
		if !attached.DeclaredOf(g.Lane.Name, running) {
			s.Lanes[len(s.Lanes)-1].Missing = g.Lane.Spec.Cgroup.Path
		}
	}
	return s, err
}

// unprovenBounds returns the bounds of an objective, all unproven: enforcing a lane proves none.
func unprovenBounds(o lane.Objective) []lane.Judgement {
	var all []lane.Judgement
	for _, b := range o.Bounds() {
		all = append(all, lane.Judgement{Bound: b, Verdict: lane.Unproven})
	}
	return all
}

// attachedTo returns the running workloads that are attached to a lane.
func attachedTo(name string, running []attached.Workload, v2 bool) []AttachedStatus {
	var all []AttachedStatus
	for _, at := range running {
		if at.Lane == name {
			all = append(all, AttachedStatus{Group: at.Group, PID: at.PID, Moved: v2 && !at.Own && at.Group != ""})
		}
	}
	return all
}
