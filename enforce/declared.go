package enforce

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// Refuse returns a *plan.Refusal for the first lane that declares what nothing on a host can put in force
// yet. All other fields of a lane are enforced, or are an objective (see Objectives).
func Refuse(lanes []lane.Lane) error {
	for _, l := range lanes {
		fields := notEnforced(l.Spec.Network)
		if len(fields) == 0 {
			continue
		}
		names := slices.Sorted(maps.Keys(fields))
		blocking := []string{}
		for _, name := range names {
			blocking = append(blocking, fmt.Sprintf("%s: %v", name, fields[name]))
		}
		blocking = append(blocking,
			"this version makes no network paths, the workload keeps the network that it has")
		return &plan.Refusal{APIVersion: plan.APIVersion, Kind: plan.KindOfRefusal, Lane: l.Metadata.Name,
			Blocking: blocking,
			Cheapest: &plan.Change{Lane: l.Metadata.Name, Change: "leave out " + strings.Join(names, ", ")}}
	}
	return nil
}

// notEnforced are the fields that ask for a network path, with their values.
func notEnforced(n lane.Network) map[string]any {
	fields := map[string]any{}
	if n.Path != "" {
		fields["spec.network.path"] = n.Path
	}
	if n.VFs > 0 {
		fields["spec.network.vfs"] = n.VFs
	}
	if n.VLAN.Outer > 0 {
		fields["spec.network.vlan.outer"] = n.VLAN.Outer
	}
	if n.VLAN.Inner > 0 {
		fields["spec.network.vlan.inner"] = n.VLAN.Inner
	}
	return fields
}
