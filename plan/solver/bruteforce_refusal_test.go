package solver_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
)

// checkRefusal sees that there is no place, that the cheapest change makes one, and that no simpler one does.
func (p *bruteProblem) checkRefusal(f *referee, h host.Host, r *plan.Refusal, count *bruteCount) bruteFault {
	count.refused++
	all := bruteSolve(f, p.before, p.lanes, true)
	if all.aborted && !all.found {
		count.tooMany++
	} else if all.found {
		return bruteFault{"refused", fmt.Sprintf("%s\n  though this is possible: %s", r, all.text)}
	}
	if r.Cheapest == nil {
		return p.simpler(f, r, bruteNoChange)
	}
	count.changes++
	if len(r.Cheapest.Moves) > 0 {
		again, err := solver.Repack(h, p.placed(), p.declared())
		if err != nil {
			return bruteFault{"moves", fmt.Sprintf("%s\n  with --repack: %v", r, err)}
		}
		if fault := p.checkRepacked(f, again, plan.Placement{}, bruteLeast{}); fault.kind != "" {
			return bruteFault{"repack: " + fault.kind, fault.text}
		}
		return bruteFault{}
	}
	changed, err := p.apply(r)
	if err != nil {
		return bruteFault{"change", fmt.Sprintf("%s\n  %v", r, err)}
	}
	if _, err := solver.Solve(h, changed.placed(), changed.declared()); err != nil {
		return bruteFault{"change", fmt.Sprintf("%s\n  so changed: %v", r, err)}
	}
	return p.simpler(f, r, changeClass(r.Cheapest.Change))
}

// The kinds of change in the order in which they are cheap, as docs/placement.md has it.
const (
	bruteLetGo = iota
	bruteBoot
	bruteShare
	bruteFewer
	bruteLessMemory
	bruteLeaveOut
	bruteNoChange
)

func changeClass(change string) int {
	switch {
	case strings.HasPrefix(change, "spec.preferred"):
		return bruteLetGo
	case strings.HasPrefix(change, "spec.cpus.boot"):
		return bruteBoot
	case strings.HasPrefix(change, "spec.cpus.share"):
		return bruteShare
	case strings.HasPrefix(change, "spec.cpus.count"):
		return bruteFewer
	case change == "leave it out":
		return bruteLeaveOut
	}
	return bruteLessMemory
}

// simpler sees that no change of a cheaper kind than the one that was named makes the file fit.
func (p *bruteProblem) simpler(f *referee, r *plan.Refusal, than int) bruteFault {
	var found bruteFault
	try := func(class, i int, what string, change func(*lane.Spec)) {
		if found.kind != "" || class >= than {
			return
		}
		q := p.clone()
		change(&q.lanes[i].spec)
		if declare(q.lanes[i]).Validate() != nil {
			return
		}
		if class == bruteLeaveOut {
			q.lanes = slices.Delete(q.lanes, i, i+1)
		}
		if !q.valid() {
			return
		}
		s := newBruteSearch(f, q.before, q.lanes)
		s.any, s.most = true, bruteFewSteps
		if s.run(); s.found {
			found = bruteFault{"simpler", fmt.Sprintf("%s\n  but lane %s: %s is enough: %s", r, p.lanes[i].name, what, s.text)}
		}
	}
	for i, l := range p.lanes {
		for _, wish := range l.spec.Wishes() {
			if _, may := l.spec.Preferred[wish]; !may {
				try(bruteLetGo, i, "without "+wish, func(s *lane.Spec) {
					s.Preferred = maps.Clone(s.Preferred)
					if s.Preferred == nil {
						s.Preferred = map[string]int{}
					}
					s.Preferred[wish] = 1
				})
			}
		}
		try(bruteBoot, i, "boot", func(s *lane.Spec) { s.CPUs.Boot = true })
		try(bruteShare, i, "share", func(s *lane.Spec) { s.CPUs.Share = max(2, s.CPUs.Share) })
		for n := 1; n < l.spec.CPUs.Count; n++ {
			try(bruteFewer, i, fmt.Sprintf("%d CPUs", n), func(s *lane.Spec) { s.CPUs.Count = n })
		}
		if l.spec.Memory.Size > bruteGiB {
			try(bruteLessMemory, i, "1Gi", func(s *lane.Spec) { s.Memory.Size = bruteGiB })
		}
		try(bruteLeaveOut, i, "leave it out", func(*lane.Spec) {})
	}
	return found
}

var bruteChange = regexp.MustCompile(`^(leave it out|leave out spec\.memory\.hugepages\.[^ ]+|spec\.[^ ]+: .+)$`)

// apply does what a refusal proposes, as a person would who edits the file.
func (p *bruteProblem) apply(r *plan.Refusal) (*bruteProblem, error) {
	change := r.Cheapest.Change
	if !bruteChange.MatchString(change) {
		return nil, fmt.Errorf("%q is no change that a person can make", change)
	}
	q := p.clone()
	name := cmp.Or(r.Cheapest.Lane, r.Lane)
	at := slices.IndexFunc(q.lanes, func(l *bruteLane) bool { return l.name == name })
	if at < 0 {
		return nil, fmt.Errorf("no lane %q in the file", name)
	}
	if change == "leave it out" {
		q.lanes = slices.Delete(q.lanes, at, at+1)
		return q, nil
	}
	if size, is := strings.CutPrefix(change, "leave out spec.memory.hugepages."); is {
		q.lanes[at].spec.Memory.Hugepages = maps.Clone(q.lanes[at].spec.Memory.Hugepages)
		delete(q.lanes[at].spec.Memory.Hugepages, size)
		return q, nil
	}
	return q, q.lanes[at].edit(change)
}

// edit sets one field: "spec.cpus.count: 2". What is set in a map is added to it.
func (l *bruteLane) edit(text string) error {
	field, value, _ := strings.Cut(text, ": ")
	path := strings.Split(field, ".")[1:]
	document := fmt.Sprintf("{%s: %s%s", strings.Join(path, ": {"), value, strings.Repeat("}", len(path)))
	old := l.spec
	l.spec.Preferred, l.spec.Memory.Hugepages = maps.Clone(old.Preferred), maps.Clone(old.Memory.Hugepages)
	data, err := yaml.YAMLToJSON([]byte(document))
	if err != nil {
		return fmt.Errorf("%s: %w", document, err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&l.spec); err != nil {
		return fmt.Errorf("%s: %w", document, err)
	}
	if brief(l) == brief(&bruteLane{name: l.name, spec: old}) {
		return fmt.Errorf("%s: changes nothing", document)
	}
	return declare(l).Validate()
}
