package scenario

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/results"
)

// WithoutPods returns the scenario for a session without pods: levels that have pods are no cells.
func (s Scenario) WithoutPods() Scenario {
	s.Spec.Exclude = slices.Clone(s.Spec.Exclude)
	for _, f := range s.Spec.Factors {
		s.Spec.Exclude = append(s.Spec.Exclude, f.excluding(func(c factor.Conditions) bool { return c.Pod },
			"the session has no pods: see --runtime")...)
	}
	return s
}

// InPods returns the scenario with its application and its neighbours in pods, except in cells whose level
// says that they are processes. Packets of pods take the cluster's network, so it leaves out factors that
// vary only the path, and what the scenario says about such cells, aims and published figures. A cpuset and
// nothing else can come only from the kubelet, on a node without lanes; without a static node these cells are
// excluded. The error names what cannot be in pods.
func (s Scenario) InPods(static bool) (Scenario, error) {
	in := s
	in.Spec.Factors, in.Spec.Exclude, in.Spec.Aims, in.Spec.Published = nil, nil, nil, nil
	for _, p := range s.Spec.Probes {
		if p.Inside() {
			return s, fmt.Errorf("probe %s measures within the application: in pods only those can that measure from "+
				"outside", p.Name)
		}
	}
	for _, q := range s.Spec.Searches {
		return s, fmt.Errorf("search %s: in pods none are made", q.Name)
	}
	left := map[string]bool{}
	for _, f := range s.Spec.Factors {
		paths, err := f.inPods()
		switch {
		case (err != nil || f.Without) && of(f.Where, left): // its condition is a path, which pods do not have
			paths = true
		case err != nil:
			return s, err
		}
		if left[f.Name] = paths; !paths {
			in.Spec.Factors = append(in.Spec.Factors, f)
			in.Spec.Exclude = append(in.Spec.Exclude, f.excluding(awake,
				"a pod outside of a lane cannot keep CPUs awake")...)
			if !static {
				in.Spec.Exclude = append(in.Spec.Exclude, f.excluding(confined, "a cpuset of its own is what the "+
					"kubelet's CPU manager gives (policy static), on a node that offers no lanes: see --static-node")...)
			}
		}
	}
	for _, e := range s.Spec.Exclude {
		if !of(e.Where, left) {
			in.Spec.Exclude = append(in.Spec.Exclude, e)
		}
	}
	for _, f := range in.Spec.Factors {
		if of(f.Where, left) {
			return s, fmt.Errorf("factor %s: its where names a path, which pods do not have", f.Name)
		}
	}
	return in, in.renameCells(s)
}

// of reports whether a condition names one of some factors.
func of(where Where, factors map[string]bool) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(where)), func(name string) bool { return factors[name] })
}

// inPods reports whether a factor varies only the path. It fails if one varies what pods do not have.
func (f Factor) inPods() (paths bool, err error) {
	paths = true
	for _, l := range f.Levels() {
		var sets, none factor.Conditions
		f.Set(&sets, l.Name)
		path := sets.Path
		paths = paths && path != ""
		sets.Path, sets.VLAN, sets.Process, sets.Pod = "", none.VLAN, false, false
		if path == "" {
			sets.Place, sets.Lane, sets.Neighbours, sets.Probes = 0, none.Lane, nil, nil
		}
		if !reflect.ValueOf(sets).IsZero() {
			return false, fmt.Errorf("factor %s: level %s: pods cannot have it", f.Name, l.Name)
		}
	}
	return paths, nil
}

// awake reports whether the application's CPUs are kept awake without a lane.
func awake(c factor.Conditions) bool { return c.Place == factor.Awake }

// confined reports whether the application has a cpuset and nothing else.
func confined(c factor.Conditions) bool { return c.Place == factor.InCpuset }

// excluding excludes the levels that set some conditions.
func (f Factor) excluding(set func(factor.Conditions) bool, because string) (all []Exclusion) {
	for _, l := range f.Levels() {
		var sets factor.Conditions
		if f.Set(&sets, l.Name); set(sets) {
			all = append(all, Exclusion{Where{f.Name: {factor.Name(l.Name)}}, because})
		}
	}
	return all
}

// renameCells names the cells by the remaining factors, each once.
func (s *Scenario) renameCells(before Scenario) error {
	all := before.AllCells()
	renamed := func(name string) string {
		i := slices.IndexFunc(all, func(c results.Cell) bool { return c.Name == name })
		return s.nameOf(all[i].Levels) // a scenario that was read names existing cells
	}
	there := func(name string) bool {
		return slices.ContainsFunc(s.AllCells(), func(c results.Cell) bool { return c.Name == name })
	}
	s.Spec.Baseline = renamed(before.Spec.Baseline)
	if !there(s.Spec.Baseline) {
		return fmt.Errorf("the baseline %s: pods cannot have it", before.Spec.Baseline)
	}
	kept := func(names, but []string) (all []string) {
		for _, name := range names {
			if name = renamed(name); there(name) && !slices.Contains(append(all, but...), name) {
				all = append(all, name)
			}
		}
		return all
	}
	s.Spec.Cells, s.Spec.Modes = kept(before.Spec.Cells, nil), maps.Clone(before.Spec.Modes)
	for name, m := range s.Spec.Modes {
		m.MoreCells = kept(m.MoreCells, s.Spec.Cells)
		s.Spec.Modes[name] = m
	}
	return nil
}
