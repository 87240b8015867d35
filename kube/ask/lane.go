// Package ask reads what a pod's claims ask for, has the planner place it, and writes the result into the
// status of the claims. It is pure. A refusal is a *plan.Refusal that names the field, or what is in the way.
package ask

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/quantity"
)

// prefix begins the names of the lanes of pods.
const prefix = "kube-"

// Name returns the name of the lane for a device of a claim. index is the position of the device in the
// allocation of the claim, which never changes.
func Name(uid string, index int) string { return fmt.Sprintf("%s%s-%d", prefix, uid, index) }

// Claim returns the uid of the claim to which a lane belongs; "" for a lane of the host, even if named alike.
func Claim(name string) string {
	of, is := strings.CutPrefix(name, prefix)
	const length = 36 // of the uid that the API server makes (RFC 9562)
	if !is || len(of) < length || uuid.Validate(of[:length]) != nil {
		return ""
	}
	if rest := of[length:]; !strings.HasPrefix(rest, "-") || strings.Trim(rest, "-.0123456789") != "" {
		return ""
	}
	return of[:length]
}

// Lanes returns the lanes that a claim asks for from a pool: one for each device that it was given there. h
// says how many threads a core has.
func Lanes(h host.Host, c *resourceapi.ResourceClaim, pool string) (lanes []lane.Lane, err error) {
	if c.Status.Allocation == nil {
		return nil, nil
	}
	for i, r := range c.Status.Allocation.Devices.Results {
		if r.Driver != offer.Driver || r.Pool != pool {
			continue
		}
		l, err := request{h: h, claim: c, result: r}.lane(Name(string(c.UID), i))
		if err != nil {
			why := fmt.Sprintf("claim %s, request %s: %s", c.Name, r.Request, err)
			return nil, Mistake{&plan.Refusal{APIVersion: plan.APIVersion, Kind: plan.KindOfRefusal,
				Lane: l.Metadata.Name, Blocking: []string{why}}}
		}
		lanes = append(lanes, l)
	}
	return lanes, nil
}

// request is what a claim asks of one device.
type request struct {
	h      host.Host
	claim  *resourceapi.ResourceClaim
	result resourceapi.DeviceRequestAllocationResult
}

// lane returns the lane of a request. Its amounts are in the capacity, where the scheduler counts them. All
// else is in the parameters.
func (r request) lane(name string) (lane.Lane, error) {
	named := lane.Lane{Metadata: lane.Metadata{Name: name}}
	if admin := r.result.AdminAccess; admin != nil && *admin {
		return named, errors.New("adminAccess: expected none: the scheduler counts nothing for it")
	}
	node, err := offer.NUMANode(r.result.Device)
	if err != nil {
		return named, err
	}
	parameters, err := r.parameters()
	if err != nil {
		return named, err
	}
	amounts, err := r.amounts()
	if err != nil {
		return named, err
	}
	l, err := amounts.parse(name, parameters, offer.ThreadsPerCore(r.h, node))
	if err == nil {
		err = onlyOfPods(l.Spec)
	}
	if err == nil {
		err = amounts.memory(&l.Spec)
	}
	if _, v2 := r.h.Kernel.Cgroup.Cpuset(); v2 && offer.Partition(r.h) == offer.Cpusets {
		l.Spec.Cgroup.Partition = lane.Member
	}
	near := l.Spec.Near.NUMANode
	if err == nil && l.Spec.Near != (lane.Near{}) && (near == nil || *near != node) {
		err = fmt.Errorf("parameters: spec.near: expected none: the lane is near to %s, the device that it has; "+
			"matchAttribute resource.kubernetes.io/numaNode brings it near to others", r.result.Device)
	}
	if err == nil && node >= 0 {
		l.Spec.Near, l.Spec.CPUs.NUMA = lane.Near{NUMANode: &node}, lane.One
	}
	if err == nil {
		err = l.Validate()
	}
	return l, field(err)
}

// amounts are what the scheduler counts, by name of the capacity: numbers of CPUs and cores, and bytes.
type amounts map[string]int64

// amounts reads the capacity as the author of the request wrote it. What the scheduler counts may be rounded.
func (r request) amounts() (amounts, error) {
	found := amounts{}
	if len(r.result.ConsumedCapacity) == 0 {
		return nil, errors.New("the scheduler has counted no amounts for it, and may give its CPUs to others: " +
			"expected the feature DRAConsumableCapacity in API server and scheduler (on since Kubernetes 1.36)")
	}
	for _, name := range slices.Sorted(maps.Keys(r.capacity())) {
		asked := r.capacity()[name]
		number, ours := strings.CutPrefix(string(name), offer.Driver+"/")
		known := slices.Contains([]string{offer.CPUs, offer.Cores, offer.Memory}, number) ||
			strings.HasPrefix(number, offer.Hugepages)
		switch n, whole := asked.AsInt64(); {
		case !known && !ours:
			return nil, fmt.Errorf("capacity.requests.%s: unknown: expected cpus, cores, memory or hugepages2Mi", name)
		case !whole || n < 0:
			return nil, fmt.Errorf("capacity.requests.%s: expected a whole number, 0 or more, found %s", name, &asked)
		case n > 0:
			found[number] = n
		}
		if used := r.result.ConsumedCapacity[name]; used.Cmp(asked) != 0 {
			return nil, fmt.Errorf("capacity.requests.%s: the scheduler has counted %s for it, expected %s: "+
				"allocate the claim again", name, &used, &asked)
		}
	}
	return found, nil
}

// capacity returns what the request asks for, by name, from the claim as written.
func (r request) capacity() map[resourceapi.QualifiedName]resource.Quantity {
	main, sub, _ := strings.Cut(r.result.Request, "/")
	for _, q := range r.claim.Spec.Devices.Requests {
		if q.Name != main {
			continue
		}
		if q.Exactly != nil && q.Exactly.Capacity != nil {
			return q.Exactly.Capacity.Requests
		}
		for _, s := range q.FirstAvailable {
			if s.Name == sub && s.Capacity != nil {
				return s.Capacity.Requests
			}
		}
	}
	return nil
}

// count returns how many CPUs are asked for, if each core has threads CPUs.
func (a amounts) count(smt string, threads int) (int64, error) {
	count, cores := a[offer.CPUs], a[offer.Cores]
	if cores > 0 {
		of := map[string]int64{lane.Isolate: cores, lane.Pack: cores * int64(threads)}[smt]
		switch {
		case of == 0:
			return 0, errors.New("capacity.requests.cores: expected spec.cpus.smt: isolate or pack in the " +
				"parameters, else ask for cpus")
		case count > 0 && count != of:
			return 0, fmt.Errorf("capacity.requests.cores: %d of %d threads, smt: %s, are %d CPUs, and "+
				"capacity.requests.cpus says %d", cores, threads, smt, of, count)
		}
		count = of
	}
	if count == 0 {
		return 0, errors.New("capacity.requests.cpus: missing: expected the CPUs of the lane, such as \"2\"")
	}
	return count, nil
}

// memory writes the amounts of memory into a spec, and refuses a spec that contradicts them.
func (a amounts) memory(s *lane.Spec) error {
	size := quantity.Bytes(a[offer.Memory])
	if s.Memory.Size != 0 && s.Memory.Size != size {
		return fmt.Errorf("parameters: spec.memory.size: %s contradicts capacity.requests.memory, which says %s: "+
			"leave it out", s.Memory.Size, size)
	}
	s.Memory.Size = size
	pages := map[string]quantity.Bytes{}
	for name, n := range a {
		if page, is := strings.CutPrefix(name, offer.Hugepages); is {
			pages[page] = quantity.Bytes(n)
		}
	}
	for page, n := range s.Memory.Hugepages {
		if pages[page] != n {
			return fmt.Errorf("parameters: spec.memory.hugepages.%s: %s contradicts "+
				"capacity.requests.hugepages%[1]s, which says %[3]s: leave it out", page, n, pages[page])
		}
	}
	if s.Memory.Hugepages = nil; len(pages) > 0 {
		s.Memory.Hugepages = pages
	}
	return nil
}

// parameters returns the driver's parameters for the request: those of the claim, else those of its class;
// nil if there are none.
func (r request) parameters() (json.RawMessage, error) {
	main, _, _ := strings.Cut(r.result.Request, "/")
	found := map[resourceapi.AllocationConfigSource]json.RawMessage{}
	for _, c := range r.claim.Status.Allocation.Devices.Config {
		mine := len(c.Requests) == 0 || slices.Contains(c.Requests, r.result.Request) ||
			slices.Contains(c.Requests, main)
		if c.Opaque == nil || c.Opaque.Driver != offer.Driver || !mine {
			continue
		}
		if found[c.Source] != nil {
			return nil, errors.New("config: expected one with driver " + offer.Driver + " for the request, found two")
		}
		found[c.Source] = c.Opaque.Parameters.Raw
	}
	if own := found[resourceapi.AllocationConfigSourceClaim]; own != nil {
		return own, nil
	}
	return found[resourceapi.AllocationConfigSourceClass], nil
}

// parse reads parameters as isolane reads a lane file. Parameters have no name, and their count of CPUs comes
// from the capacity.
func (a amounts) parse(name string, parameters json.RawMessage, threads int) (lane.Lane, error) {
	named := lane.Lane{Metadata: lane.Metadata{Name: name}}
	if parameters == nil {
		parameters = fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q}`, lane.APIVersion, lane.Kind)
	}
	var document, spec, cpus map[string]json.RawMessage
	if err := json.Unmarshal(parameters, &document); err != nil || document == nil {
		return named, fmt.Errorf("parameters: expected a document of kind %s, found %.40s", lane.Kind, parameters)
	}
	if _, has := document["metadata"]; has {
		return named, errors.New("parameters: metadata: expected none: the lane has its name from the claim")
	}
	if err := errors.Join(once(parameters, ""), once(document["spec"], "spec.")); err != nil {
		return named, err
	}
	document["metadata"] = fmt.Appendf(nil, `{"name":%q}`, name)
	if json.Unmarshal(orEmpty(document["spec"]), &spec) == nil &&
		json.Unmarshal(orEmpty(spec["cpus"]), &cpus) == nil { // otherwise lane.Parse says what is wrong
		if err := once(spec["cpus"], "spec.cpus."); err != nil {
			return named, err
		}
		var smt string
		if json.Unmarshal(cpus["smt"], &smt) != nil {
			smt = ""
		}
		count, err := a.count(smt, threads)
		if err != nil {
			return named, err
		}
		if said := string(cpus["count"]); said != "" && said != strconv.FormatInt(count, 10) {
			return named, fmt.Errorf("parameters: spec.cpus.count: %s contradicts capacity.requests, which says %d: "+
				"leave it out", said, count)
		}
		cpus["count"] = strconv.AppendInt(nil, count, 10)
		if spec["cpus"], err = json.Marshal(cpus); err == nil {
			document["spec"], err = json.Marshal(spec)
		}
		if err != nil {
			return named, err
		}
	}
	text, err := json.Marshal(document)
	if err != nil {
		return named, err
	}
	lanes, err := lane.Parse("parameters", bytes.NewReader(text))
	if err != nil {
		return named, err
	}
	return lanes[0], nil
}

// once refuses a field that is given twice in an object that parse decodes into a map, because the map would
// keep the last one. lane.Parse reports repeated fields in deeper objects, and anything that is no object.
func once(object json.RawMessage, path string) error {
	seen := map[json.Token]bool{}
	d := json.NewDecoder(bytes.NewReader(object))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil
	}
	for d.More() {
		name, err := d.Token()
		if seen[name] {
			return fmt.Errorf("parameters: %s%s: is given a second time", path, name)
		}
		if seen[name] = true; err == nil {
			err = d.Decode(new(json.RawMessage)) // the value of the field
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func orEmpty(part json.RawMessage) json.RawMessage {
	if part == nil || string(part) == "null" {
		return json.RawMessage("{}")
	}
	return part
}

// field drops the line of an error, because parameters have only one. It names amounts as the capacity does.
func field(err error) error {
	if f, is := errors.AsType[*lane.FieldError](err); is {
		if amount := ofCapacity().Replace(f.Field); amount != f.Field {
			return fmt.Errorf("%s: %s", amount, f.Text)
		}
		return &lane.FieldError{File: "parameters", Field: f.Field, Text: f.Text}
	}
	return err
}

// onlyOfPods refuses what a pod's lane gets from its pod, or cannot have yet.
func onlyOfPods(s lane.Spec) error {
	for _, f := range []struct {
		name string
		has  bool
		why  string
	}{
		{"network", !reflect.ValueOf(s.Network).IsZero(), "a pod's network is that of its cluster"},
		{"cgroup", s.Cgroup != lane.Cgroup{}, "a lane is in the cgroup of its container"},
		{"switch", s.Switch != "", "a switch is the host's"},
		{"cpus.list", !s.CPUs.List.IsEmpty(), "the node chooses the CPUs"},
		{"cpus.share", s.CPUs.Share > 1, "lanes of pods share no CPUs"},
		{"cpus.boot", s.CPUs.Boot, "the boot CPU is the node's own"},
	} {
		if f.has {
			return fmt.Errorf("parameters: spec.%s: expected none: %s", f.name, f.why)
		}
	}
	return nil
}
