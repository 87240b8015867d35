package lane

import (
	"cmp"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/quantity"
)

// Validate returns an error that names the field, unless the declaration is valid.
func (l Lane) Validate() error {
	if err := inTable(Fields(), reflect.ValueOf(l), ""); err != nil {
		return err
	}
	name := l.Metadata.Name
	switch {
	case !isName(name):
		return wrong("metadata.name", "expected 1-63 of a-z, 0-9, '-' and '.', first and last a letter or "+
			"digit, found %s", quoted(name))
	case name == "housekeeping":
		return wrong("metadata.name", "expected another name: housekeeping are all CPUs that are no lane's")
	case l.Spec.Near.Lane == name:
		return wrong("spec.near.lane", "expected another lane, %q is this one", name)
	case slices.Contains(l.Spec.Apart.Lanes, name):
		return wrong("spec.apart.lanes", "expected other lanes, %q is this one", name)
	}
	return l.Spec.validateRules()
}

// Validate returns an error that names the field, unless the spec is valid.
func (s Spec) Validate() error {
	if err := inTable(Fields(), reflect.ValueOf(s), "spec"); err != nil {
		return err
	}
	return s.validateRules()
}

// The form of texts. Compiled once, because the record of lanes in force is checked whenever it is read.
var (
	laneName   = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)
	device     = regexp.MustCompile(`^[!-.0-~]{1,127}$`) // no alternative name of a link is longer
	group      = regexp.MustCompile(`^/?[^/[:cntrl:]]+(/[^/[:cntrl:]]+)*$`)
	roleName   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,31}$`)
	percentile = regexp.MustCompile(`^(p[0-9]{1,2}(\.[0-9]{1,4})?|max)$`)
)

func isName(s string) bool { return laneName.MatchString(s) }

// inTable checks words and numbers against the table of fields.
func inTable(table []Field, v reflect.Value, path string) error {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return inRange(table, v.Elem(), path)
	case reflect.Struct:
		for i, f := range reflect.VisibleFields(v.Type()) {
			if err := inTable(table, v.Field(i), strings.TrimPrefix(path+"."+jsonName(f), ".")); err != nil {
				return err
			}
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
		for _, key := range keys {
			if err := inRange(table, v.MapIndex(key), path+"."+key.String()); err != nil {
				return err
			}
		}
	default:
		if f, _ := field(table, path); !v.IsZero() || f.Required {
			return inRange(table, v, path)
		}
	}
	return nil
}

// inRange checks one value against its row.
func inRange(table []Field, v reflect.Value, path string) error {
	f, _ := field(table, path)
	switch {
	case v.Kind() == reflect.String && len(f.Values) > 0 && !slices.Contains(f.Values, v.String()):
		return wrong(path, "expected %s, found %s", expected(f), quoted(v.String()))
	case v.Kind() == reflect.Int && f.Max > 0 && (v.Int() < int64(f.Min) || v.Int() > int64(f.Max)):
		return wrong(path, "expected %s, found %d", expected(f), v.Int())
	}
	return nil
}

// expected says what a field may be, for errors.
func expected(f Field) string {
	switch {
	case len(f.Values) > 0:
		return or(f.Values)
	case f.Max > 0:
		return strconv.Itoa(f.Min) + "-" + strconv.Itoa(f.Max)
	}
	return f.Form
}

// validateRules checks the rules that concern more than one field.
func (s Spec) validateRules() error {
	for _, check := range []func() error{
		s.validateNames, s.validateSharing, s.validateNear, s.validateWishes, s.validateNetwork,
		s.validateRoles, s.validateMemory, s.validateObjective, s.Scheduling.validate,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// validateNames checks the form of names of other things, so that nothing else is looked up by them.
func (s Spec) validateNames() error {
	for _, f := range []struct{ path, name string }{
		{"spec.near.device", s.Near.Device}, {"spec.network.device", s.Network.Device},
	} {
		if f.name != "" && !device.MatchString(f.name) {
			return wrong(f.path, "expected a network device or a PCI address, found %s", quoted(f.name))
		}
	}
	if p := s.Cgroup.Path; p != "" && (!group.MatchString(p) || slices.Contains(strings.Split(p, "/"), "..")) {
		return wrong("spec.cgroup.path", "expected a cgroup such as system.slice/web.service, found %s", quoted(p))
	}
	if s.Near.Lane != "" && !isName(s.Near.Lane) {
		return wrong("spec.near.lane", "expected the name of a lane, found %s", quoted(s.Near.Lane))
	}
	for i, name := range s.Apart.Lanes {
		if !isName(name) {
			return wrong("spec.apart.lanes["+strconv.Itoa(i)+"]", "expected the name of a lane, found %s",
				quoted(name))
		}
	}
	return nil
}

func (s Spec) validateSharing() error {
	switch share, list := s.CPUs.Share, s.CPUs.List; {
	case !list.IsEmpty() && list.Len() != s.CPUs.Count:
		return wrong("spec.cpus.list", "expected %d CPUs, spec.cpus.count, found %s", s.CPUs.Count, list)
	case !list.IsEmpty() && share > 1:
		return wrong("spec.cpus.list", "contradicts spec.cpus.share: %d: who shares CPUs cannot choose them", share)
	case share > 1 && (s.CPUs.SMT == Isolate || s.CPUs.SMT == Pack):
		return wrong("spec.cpus.share",
			"%d contradicts spec.cpus.smt: %s: who shares a CPU cannot have whole cores",
			share, s.CPUs.SMT)
	case share > 1 && s.Cgroup != Cgroup{}:
		return wrong("spec.cpus.share", "%d contradicts spec.cgroup: lanes that share CPUs are in one partition",
			share)
	case share > 1 && s.Scheduling.Policy.IsRealTime():
		return wrong("spec.cpus.share",
			"%d contradicts spec.scheduling.policy: %s: one lane would starve the others",
			share, s.Scheduling.Policy)
	}
	return nil
}

func (s Spec) validateNear() error {
	n, asked := s.Near, 0
	for _, set := range []bool{n.Device != "", n.NUMANode != nil, n.Lane != ""} {
		if set {
			asked++
		}
	}
	if asked > 1 {
		return wrong("spec.near", "expected one of device, numaNode and lane, found %d", asked)
	}
	return nil
}

func (s Spec) validateWishes() error {
	wishes := s.Wishes()
	for _, name := range slices.Sorted(maps.Keys(s.Preferred)) {
		if !slices.Contains(wishes, name) {
			return wrong("spec.preferred."+name, "expected one of the wishes in this spec: %s",
				cmp.Or(strings.Join(wishes, ", "), "there is none"))
		}
	}
	far := s.Apart.Level == "node" || s.Apart.Level == "package"
	required := s.Preferred["near"]+s.Preferred["apart"] == 0
	switch {
	case s.Apart.Level != "" && len(s.Apart.Lanes) == 0:
		return wrong("spec.apart.lanes", "missing: expected the lanes to be apart from")
	case far && required && s.Near.Lane != "" && slices.Contains(s.Apart.Lanes, s.Near.Lane):
		return wrong("spec.apart", "contradicts spec.near.lane: %s", quoted(s.Near.Lane))
	}
	return nil
}

func (s Spec) validateRoles() error {
	total := 0
	for _, role := range slices.Sorted(maps.Keys(s.Roles)) {
		if !roleName.MatchString(role) {
			return wrong("spec.roles."+role, "expected 1-32 letters, digits, '-' and '_', found %s", quoted(role))
		}
		total += s.Roles[role]
	}
	if total > s.CPUs.Count {
		return wrong("spec.roles", "expected at most %d CPUs in all, spec.cpus.count, found %d", s.CPUs.Count,
			total)
	}
	return nil
}

func (s Spec) validateMemory() error {
	sizes := map[quantity.Bytes]string{}
	for _, size := range slices.Sorted(maps.Keys(s.Memory.Hugepages)) {
		path, total := "spec.memory.hugepages."+size, s.Memory.Hugepages[size]
		switch page, err := quantity.ParseBytes(size); {
		case err != nil || page == 0 || page&(page-1) != 0: // 2M are two million bytes
			return wrong(path, "expected the size of a page, such as 2Mi or 1Gi, found %s", quoted(size))
		case total%page != 0:
			return wrong(path, "expected a multiple of the page, %s, found %s", page, total)
		case sizes[page] != "":
			return wrong(path, "expected each size once: %s is the same", sizes[page])
		default:
			sizes[page] = size
		}
	}
	return nil
}

func (s Spec) validateObjective() error {
	given := map[float64]string{}
	for _, p := range slices.Sorted(maps.Keys(s.Objective.RTT)) {
		q, err := Quantile(p)
		if err != nil || !percentile.MatchString(p) {
			return wrong("spec.objective.rtt."+p, "expected a percentile such as p99.9, or max, found %s", quoted(p))
		}
		if given[q] != "" {
			return wrong("spec.objective.rtt."+p, "expected each percentile once: %s is the same", given[q])
		}
		given[q] = p
		if s.Objective.RTT[p] == 0 {
			return wrong("spec.objective.rtt."+p, "expected more than 0, found 0")
		}
	}
	return nil
}

func (s Scheduling) validate() error {
	realTime := s.Policy.IsRealTime()
	switch {
	case realTime && s.Priority == 0:
		return wrong("spec.scheduling.priority", "missing: policy %s needs one, 1-98", s.Policy)
	case !realTime && s.Priority != 0:
		return wrong("spec.scheduling.priority", "%d is only possible with policy fifo or rr", s.Priority)
	}
	return nil
}
