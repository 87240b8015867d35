package guard

import (
	"context"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/netpath"
)

// Watched is what to watch of lanes: their CPUs, the cgroups whose tasks belong there, the interrupts that
// belong there, each with its CPU, and the lanes themselves.
type Watched struct {
	CPUs       cpuset.Set
	Groups     []string
	On         []cpuset.Set // the CPUs where the tasks of each group belong
	Interrupts map[int]int
	Lanes      []enforce.LaneGroup
}

// Watched returns what to watch of the lanes in force: of all, or of the lane with this name.
func (g *Guard) Watched(name string) (w Watched, err error) {
	if name != "" {
		if _, err = g.lanes.Lane(name); err != nil {
			return w, err
		}
	}
	w.Interrupts = map[int]int{}
	for _, group := range g.groups {
		if name != "" && group.Lane.Name != name {
			continue
		}
		w.CPUs, w.Groups = w.CPUs.Union(group.Lane.Owned()), append(w.Groups, group.Dir)
		w.On = append(w.On, group.Lane.Owned())
		w.Lanes = append(w.Lanes, group)
		for _, i := range group.Lane.Interrupts {
			w.Interrupts[i.IRQ] = i.CPU
		}
	}
	for _, at := range g.lanes.Attached {
		if at.Group != "" && (name == "" || at.Lane == name) {
			placed, _ := g.lanes.Placement.Lane(at.Lane)
			w.Groups, w.On = append(w.Groups, at.Group), append(w.On, placed.Owned())
		}
	}
	return w, nil
}

// Traffic returns what the path of a lane has carried, or nil if the lane or its path is gone.
func (g *Guard) Traffic(ctx context.Context, name string) (*netpath.Traffic, error) {
	placed, there := g.lanes.Placement.Lane(name)
	if !there {
		return nil, nil
	}
	return g.lanes.Traffic(ctx, placed)
}

// Recorded returns an *enforce.NoRecordError if there are lanes without a record.
func (g *Guard) Recorded() error { return g.lanes.Recorded() }
