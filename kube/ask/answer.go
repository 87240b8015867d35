package ask

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
	"isolane.dev/isolane/quantity"
)

// Solve places the lanes of all claims of a pod beside what is placed: all or none. Lanes that were answered
// keep their CPUs. The error is a *plan.Refusal; it is a Mistake if every node would refuse. beside are the
// pod's other claims of lanes, which already have theirs.
func Solve(h host.Host, placed plan.Placement, pool string, pod *corev1.Pod,
	claims []*resourceapi.ResourceClaim, beside ...*resourceapi.ResourceClaim) (plan.Placement, error) {
	if err := onePod(pod, claims); err != nil {
		return plan.Placement{}, err
	}
	var lanes []lane.Lane
	for _, c := range claims {
		of, err := Pinned(h, c, pool)
		if err != nil {
			return plan.Placement{}, err
		}
		for _, l := range of {
			if _, is := placed.Lane(l.Metadata.Name); !is { // if it is, the answer was lost
				lanes = append(lanes, l)
			}
		}
	}
	if err := oneLane(pod, claims, pool); err != nil {
		return plan.Placement{}, err
	}
	p, err := solver.Solve(h, placed, lanes)
	if err != nil {
		return plan.Placement{}, forAuthor(err, h, placed, lanes, claims)
	}
	return p, Fits(h, pod, claims, pool, p, beside...)
}

// Pinned returns the lanes that a claim asks for. A lane that was answered asks for the CPUs that it was
// given. If somebody writes other CPUs into the status, the claim gets those if it could have had them, and
// is refused otherwise.
func Pinned(h host.Host, c *resourceapi.ResourceClaim, pool string) ([]lane.Lane, error) {
	lanes, err := Lanes(h, c, pool)
	if err != nil {
		return nil, err
	}
	answered, err := Answered(c, pool)
	if err != nil {
		return nil, refuse(c, err)
	}
	for i, l := range lanes {
		if was, is := plan.Find(answered, l.Metadata.Name); is {
			lanes[i].Spec.CPUs.List = was.CPUs
		}
	}
	return lanes, nil
}

// Mistake is a refusal because of what a pod or its claim says. Every other node would refuse it too.
type Mistake struct{ *plan.Refusal }

// Unwrap returns the refusal.
func (m Mistake) Unwrap() error { return m.Refusal }

func refuse(c *resourceapi.ResourceClaim, err error) error { return Mistake{refuseHere(c, err)} }

// refuseHere returns a refusal because of what this node has.
func refuseHere(c *resourceapi.ResourceClaim, err error) *plan.Refusal {
	return &plan.Refusal{APIVersion: plan.APIVersion, Kind: plan.KindOfRefusal, Lane: Name(string(c.UID), 0),
		Blocking: []string{fmt.Sprintf("claim %s: %s", c.Name, err)}}
}

// onePod refuses claims that are shared with another pod, or that the pod does not name. The scheduler makes
// such a claim for a pod that asks for a class as an extended resource, which has no amounts.
func onePod(pod *corev1.Pod, claims []*resourceapi.ResourceClaim) error {
	for _, c := range claims {
		if len(claimNames(pod, c)) == 0 {
			return refuse(c, fmt.Errorf("expected it in spec.resourceClaims of pod %s: ask for a lane by a "+
				"ResourceClaimTemplate, not by resources.limits of a container", pod.Name))
		}
		for _, by := range c.Status.ReservedFor {
			if by.UID != pod.UID {
				return refuse(c, fmt.Errorf("reserved for %s too: a lane is one pod's: give each pod a claim of "+
					"its own, by a ResourceClaimTemplate", by.Name))
			}
		}
	}
	return nil
}

// OfPod refuses a claim that is reserved for something else than a pod.
func OfPod(c *resourceapi.ResourceClaim) error {
	for _, by := range c.Status.ReservedFor {
		if by.Resource != "pods" || by.APIGroup != "" {
			return refuse(c, fmt.Errorf("reserved for %s %s: expected a pod: name the claim in the pod's "+
				"spec.resourceClaims", by.Resource, by.Name))
		}
	}
	return nil
}

// oneLane refuses containers that use several of these lanes, because a container is in one, and requests for
// several devices.
func oneLane(pod *corev1.Pod, claims []*resourceapi.ResourceClaim, pool string) error {
	used := map[string]int{}
	for _, c := range claims {
		seen := map[string]bool{}
		for _, r := range offer.Results(c, pool) {
			if seen[r.Request] {
				return refuse(c, fmt.Errorf("request %s: count: expected 1: a lane has the CPUs that "+
					"capacity.requests.cpus says, and for another lane there is another request", r.Request))
			}
			seen[r.Request] = true
			first, together := users(pod, claimNames(pod, c), r.Request)
			for _, container := range slices.Concat(first, together) {
				if used[container.Name]++; used[container.Name] > 1 {
					return refuse(c, fmt.Errorf("container %s: %d lanes: expected one: name one claim in its "+
						"resources.claims, and if that has several requests, one of them: {name: …, request: …}",
						container.Name, used[container.Name]))
				}
			}
		}
	}
	return nil
}

// Status returns the status of a claim's devices with the result of Solve: each has the placement or the
// refusal as data, and a condition. The scheduler takes the first status of a device for all its shares, so
// all have the same conditions. Status of other drivers stays. partition is the kind that the node makes.
func Status(c *resourceapi.ResourceClaim, pool, partition string, p plan.Placement, err error,
	now metav1.Time) ([]resourceapi.AllocatedDeviceStatus, error) {
	all := slices.DeleteFunc(slices.Clone(c.Status.Devices), func(s resourceapi.AllocatedDeviceStatus) bool {
		return s.Driver == offer.Driver && s.Pool == pool
	})
	for i, r := range c.Status.Allocation.Devices.Results {
		if r.Driver != offer.Driver || r.Pool != pool {
			continue
		}
		s := resourceapi.AllocatedDeviceStatus{Driver: r.Driver, Pool: r.Pool, Device: r.Device}
		if r.ShareID != nil {
			s.ShareID = new(string(*r.ShareID))
		}
		var document any
		placed := metav1.Condition{Type: offer.Placed, Status: metav1.ConditionTrue, Reason: offer.Placed,
			LastTransitionTime: now}
		if err != nil {
			placed.Status, placed.Reason = metav1.ConditionFalse, offer.Refused
			// The condition has the claim beside it, and the data name the lane, so the message does not repeat them.
			placed.Message = err.Error()
			if r, is := errors.AsType[*plan.Refusal](err); is {
				placed.Message = ofRequest(c, pool, err, r.Lane) +
					strings.TrimPrefix(placed.Message, "lane "+r.Lane+" refused: ")
			}
			failed := placed
			failed.Type, failed.Status = offer.Refused, metav1.ConditionTrue
			meta.SetStatusCondition(&s.Conditions, failed)
			document = refusal(err, Name(string(c.UID), i))
		} else {
			l, is := p.Lane(Name(string(c.UID), i))
			if !is {
				return nil, fmt.Errorf("claim %s: no lane was placed for device %d", c.Name, i)
			}
			placed.Message = describe(l, partition)
			one := p
			one.Lanes = []plan.Lane{l}
			document = one
		}
		meta.SetStatusCondition(&s.Conditions, placed)
		if len(c.Status.ReservedFor) > 0 {
			meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: answeredFor, Status: metav1.ConditionTrue,
				Reason: "Pod", Message: string(c.Status.ReservedFor[0].UID), LastTransitionTime: now})
		}
		data, merr := json.Marshal(document)
		if merr != nil {
			return nil, merr
		}
		s.Data = &runtime.RawExtension{Raw: data}
		all = append(all, s)
	}
	return all, nil
}

// ofRequest names the request whose lane the planner has refused, if the claim has several.
func ofRequest(c *resourceapi.ResourceClaim, pool string, err error, name string) string {
	if _, mistaken := errors.AsType[Mistake](err); mistaken || len(offer.Results(c, pool)) < 2 {
		return ""
	}
	for i, r := range c.Status.Allocation.Devices.Results {
		if Name(string(c.UID), i) == name {
			return "request " + r.Request + ": "
		}
	}
	return ""
}

// refusal returns err as a document.
func refusal(err error, name string) *plan.Refusal {
	if r, is := errors.AsType[*plan.Refusal](err); is {
		return r
	}
	return &plan.Refusal{APIVersion: plan.APIVersion, Kind: plan.KindOfRefusal, Lane: name,
		Blocking: []string{err.Error()}}
}

// describe describes a lane for readers of a claim's conditions, including who keeps others off its CPUs.
func describe(l plan.Lane, partition string) string {
	text := fmt.Sprintf("CPUs %s, memory of NUMA node %s", l.CPUs, l.MemoryNodes)
	if !l.Idle.IsEmpty() {
		text += fmt.Sprintf(", siblings %s idle", l.Idle)
	}
	for _, pages := range l.Hugepages {
		text += fmt.Sprintf(", %d hugepages of %s on node %d", pages.Pages, quantity.Bytes(pages.PageBytes),
			pages.Node)
	}
	text += map[string]string{
		offer.Remote:  ", partition remote (the kernel keeps others off)",
		offer.Cpusets: ", cpuset (other containers are kept out by Isolane)",
	}[partition]
	return text + ": " + strings.Join(l.Reasons, "; ")
}

// answeredFor is the condition that has the uid of the pod for which a claim was answered.
const answeredFor = "AnsweredFor"

// AnsweredFor returns the uid of the pod for which a claim was answered, or "" if an older version answered
// it, which did not record the pod.
func AnsweredFor(c *resourceapi.ResourceClaim, pool string) string {
	for _, s := range c.Status.Devices {
		of := meta.FindStatusCondition(s.Conditions, answeredFor)
		if s.Driver == offer.Driver && s.Pool == pool && of != nil {
			return of.Message
		}
	}
	return ""
}

// Says reports whether the status of a claim is as Status writes it for lanes with these CPUs, by name, of a
// pod.
func Says(c *resourceapi.ResourceClaim, pool, pod string, lanes map[string]cpuset.Set) bool {
	answered, err := Answered(c, pool)
	if of := AnsweredFor(c, pool); err != nil || len(answered) != len(lanes) || of != "" && of != pod {
		return false
	}
	for _, l := range answered {
		has := lanes[l.Name]
		begins := fmt.Sprintf("CPUs %s, memory of NUMA node ", has)
		if l.CPUs != has || !slices.ContainsFunc(c.Status.Devices, func(s resourceapi.AllocatedDeviceStatus) bool {
			placed := meta.FindStatusCondition(s.Conditions, offer.Placed)
			return s.Driver == offer.Driver && s.Pool == pool && placed != nil &&
				strings.HasPrefix(placed.Message, begins) && !meta.IsStatusConditionTrue(s.Conditions, offer.Refused)
		}) {
			return false
		}
	}
	return true
}

// Answered returns the lanes that are placed according to the status of a claim, if any. It returns an error
// for a status that this program cannot have written.
func Answered(c *resourceapi.ResourceClaim, pool string) (lanes []plan.Lane, err error) {
	if c.Status.Allocation == nil {
		return nil, nil
	}
	for i, r := range c.Status.Allocation.Devices.Results {
		at := slices.IndexFunc(c.Status.Devices, func(s resourceapi.AllocatedDeviceStatus) bool {
			same := s.ShareID == nil && r.ShareID == nil ||
				s.ShareID != nil && r.ShareID != nil && *s.ShareID == string(*r.ShareID)
			return s.Driver == r.Driver && s.Pool == r.Pool && s.Device == r.Device && same
		})
		if r.Driver != offer.Driver || r.Pool != pool || at < 0 {
			continue
		}
		s := c.Status.Devices[at]
		if !meta.IsStatusConditionTrue(s.Conditions, offer.Placed) || s.Data == nil {
			continue
		}
		name := Name(string(c.UID), i)
		p, err := plan.Read(fmt.Sprintf("status.devices[%d].data", at), bytes.NewReader(s.Data.Raw))
		if err != nil {
			return nil, err
		}
		l, is := p.Lane(name)
		if !is || len(p.Lanes) != 1 {
			return nil, fmt.Errorf("status.devices[%d].data: expected one lane, %s, as this program writes it: "+
				"delete the pod, or the status", at, name)
		}
		lanes = append(lanes, l)
	}
	return lanes, nil
}
