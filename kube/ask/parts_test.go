package ask_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
)

// several returns a pod whose containers use the claim, each with its request of CPUs. "first" is an init
// container that ends before the others start.
func several(containers ...string) *corev1.Pod {
	p := pod("8")
	p.Spec.Containers = nil
	for _, text := range containers {
		name, cpu, _ := strings.Cut(text, ":")
		if name == "first" {
			p.Spec.InitContainers = append(p.Spec.InitContainers, user(name, cpu))
		} else {
			p.Spec.Containers = append(p.Spec.Containers, user(name, cpu))
		}
	}
	return p
}

// Containers that share a claim get their own lanes, which together are the lane of the claim.
func TestParts(t *testing.T) {
	for name, c := range map[string]struct {
		cpus, spec string
		containers []string
		lanes      string // or the text of the refusal
	}{
		"one has all": {"3", `{"roles":{"main":1,"worker":1}}`, []string{"main:3"}, "-0=1-2,9 {main:1 worker:1}"},
		"two roles": {"3", `{"roles":{"main":1,"worker":2}}`, []string{"worker:2", "main:1"},
			"-0.1=1 {main:1} -0.2=2,9 balanced {worker:2}"},
		"a role and the rest": {"4", `{"roles":{"worker":1,"poll":2}}`, []string{"worker:1", "app:3"},
			"-0=1-2,10 {poll:2} -0.1=9 {worker:1}"},
		"idle siblings": {"3", `{"cpus":{"smt":"isolate"},"roles":{"worker":2}}`, []string{"worker:4", "app:2"},
			"-0=3 idle 11 {} -0.1=1-2 idle 9-10 balanced {worker:2}"},
		"whole cores":            {"4", `{"cpus":{"smt":"pack"},"roles":{"worker":3}}`, []string{"worker:3", "app:1"}, "-0=10 {} -0.1=1-2,9 balanced {worker:3}"},
		"a wish":                 {"2", `{"cpus":{"kind":"efficiency"},"preferred":{"kind":1},"roles":{"a":1,"b":1}}`, []string{"a:1", "b:1"}, "-0.1=1 {a:1} -0.2=9 {b:1}"},
		"init has the rest":      {"2", `{"roles":{"worker":1}}`, []string{"first:1", "worker:1", "app:1"}, "-0=9 {} -0.1=1 {worker:1}"},
		"init of a role":         {"2", `{"roles":{"first":1,"app":1}}`, []string{"first:2", "app:2"}, "-0=1,9 {app:1 first:1}"},
		"too few of its own":     {"3", `{"roles":{"worker":2}}`, []string{"worker:1", "app:1"}, "container worker: resources.requests.cpu: expected 2 or more"},
		"nobody's CPUs":          {"3", `{"roles":{"a":1,"b":1}}`, []string{"a:1", "b:1"}, "spec.roles: expected roles of the containers for all 3 CPUs: CPUs 9 are no container's"},
		"none left":              {"2", `{"roles":{"a":2}}`, []string{"a:2", "b:1"}, "container b: expected a role of its name in spec.roles, or CPUs that are no other container's: the roles (a) have all 2"},
		"two others":             {"3", `{"roles":{"a":1}}`, []string{"a:1", "b:1", "c:1"}, "containers b, c: expected all but one to be named like a role of spec.roles (a)"},
		"none for an init":       {"2", `{"roles":{"a":1,"b":1}}`, []string{"first:1", "a:1", "b:1"}, "init container first: no CPUs are left for it: expected one container that is not named like a role"},
		"init asks for too much": {"2", `{"roles":{"a":1}}`, []string{"first:500m", "a:1", "b:1"}, "container first: resources.requests.cpu: expected 1 or more"},
	} {
		t.Run(name, func(t *testing.T) {
			r, p := request{capacity: map[string]string{"cpus": c.cpus}, parameters: spec(c.spec)}, several(c.containers...)
			h, claim := on(t), r.claim()
			placed, err := solve(t, r, p)
			if err != nil {
				if !strings.Contains(err.Error(), c.lanes) {
					t.Errorf("%v: expected %q", err, c.lanes)
				}
				return
			}
			parts, err := ask.Parts(h, p, claim, "n0", placed)
			if err != nil {
				t.Fatal(err)
			}
			// They can be placed as they are, and nothing is left of the claim's lane.
			all, err := solver.Solve(h, plan.Placement{}, parts)
			if err != nil {
				t.Fatal(err)
			}
			var found []string
			for i, l := range all.Lanes {
				if err = parts[i].Validate(); err != nil {
					t.Error(err)
				}
				if ask.Claim(l.Name) != uid || !ask.PartOf(l.Name, ask.Name(uid, 0)) {
					t.Error(l.Name)
				}
				text := strings.TrimPrefix(l.Name, "kube-"+uid) + "=" + l.CPUs.String()
				if !l.Idle.IsEmpty() {
					text += " idle " + l.Idle.String()
				}
				if b := l.Spec.CPUs.Balance; b != nil && *b {
					text += " balanced"
				}
				found = append(found, text+strings.TrimPrefix(fmt.Sprint(" ", l.Spec.Roles), "map"))
			}
			got := strings.ReplaceAll(strings.Join(found, " "), "map[", "{")
			if got = strings.ReplaceAll(got, "]", "}"); got != c.lanes {
				t.Errorf("%s\nwant %s", got, c.lanes)
			}
			if whole, _ := placed.Lane(ask.Name(uid, 0)); all.CPUs() != placed.CPUs() || whole.Idle.Union(whole.CPUs) != all.CPUs() {
				t.Errorf("%s, the claim has %s", all.CPUs(), placed.CPUs())
			}
			// A restarted program reads the same from the claim.
			pinned, err := ask.Pinned(h, answered(t, claim, placed), "n0")
			if err != nil {
				t.Fatal(err)
			}
			again, err := solver.Solve(h, plan.Placement{}, pinned)
			if err != nil {
				t.Fatal(err)
			}
			if same, err := ask.Parts(h, p, claim, "n0", again); err != nil || !reflect.DeepEqual(same, parts) {
				t.Errorf("not as the first time: %v", err)
			}
		})
	}
}

// The memory of a claim is set aside only once.
func TestPartsMemory(t *testing.T) {
	r := request{capacity: map[string]string{"cpus": "2", "hugepages2Mi": "4Mi"}, parameters: spec(`{"roles":{"a":1,"b":1}}`)}
	p := several("a:1", "b:1")
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"hugepages-2Mi": resource.MustParse("4Mi")} // a limit of one container is enough
	placed, err := solve(t, r, p)
	if err != nil {
		t.Fatal(err)
	}
	parts, err := ask.Parts(on(t), p, r.claim(), "n0", placed)
	if err != nil || len(parts) != 2 || len(parts[0].Spec.Memory.Hugepages) != 1 || len(parts[1].Spec.Memory.Hugepages) != 0 {
		t.Fatalf("%+v %v", parts, err)
	}
}

func answered(t *testing.T, c *resourceapi.ResourceClaim, p plan.Placement) *resourceapi.ResourceClaim {
	t.Helper()
	next := c.DeepCopy()
	var err error
	if next.Status.Devices, err = ask.Status(c, "n0", offer.Remote, p, nil, now()); err != nil {
		t.Fatal(err)
	}
	return next
}
