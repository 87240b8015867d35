package pod

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/quantity"
)

// The node is the one on this kernel, by name where several are.
func TestHere(t *testing.T) {
	of := func(name, boot string) (n node) {
		n.Metadata.Name, n.Status.NodeInfo.BootID = name, boot
		return n
	}
	for _, c := range []struct {
		all  []node
		want string // "": an error
	}{
		{[]node{of("a", "1"), of("b", "2")}, "b"},
		{[]node{of("me", "1"), of("b", "2")}, "b"}, // a name says nothing of the machine
		{[]node{of("b", "2"), of("me", "2")}, "me"},
		{[]node{of("b", "2"), of("c", "2")}, ""},
		{[]node{of("me", "1")}, ""},
		{nil, ""},
	} {
		got, err := here(c.all, "2", "me")
		if got.Metadata.Name != c.want || (err == nil) != (c.want != "") {
			t.Errorf("here(%v) = %q, %v; want %q", c.all, got.Metadata.Name, err, c.want)
		}
	}
}

func TestSmallest(t *testing.T) {
	var n node
	if got := n.smallest(); got != "" {
		t.Errorf("of none: %q", got)
	}
	n.Status.Images = []image{{nil, 1}, {[]string{"big:1"}, 9}, {[]string{"small@sha256:00", "small:1"}, 2}}
	if got := n.smallest(); got != "small:1" {
		t.Errorf("got %q, want small:1", got)
	}
	n.Status.Images = []image{{[]string{"small@sha256:00"}, 2}}
	if got := n.smallest(); got != "small@sha256:00" {
		t.Errorf("got %q", got)
	}
}

// A shell starts several programs with the arguments that they have.
func TestCommand(t *testing.T) {
	one := []string{"/bin/echo", "a b"}
	if d := cmp.Diff(one, command([][]string{one})); d != "" {
		t.Error(d)
	}
	argv := command([][]string{one, {"/bin/echo", `it's $HOME "x"`, ""}})
	out, err := exec.Command(argv[0], argv[1:]...).Output()
	got := string(out)
	if err != nil || !strings.Contains(got, "a b\n") || !strings.Contains(got, "it's $HOME \"x\" \n") {
		t.Errorf("%v: %q", err, got)
	}
}

// A lane's amounts stand in the capacity, and nowhere else.
func TestClaim(t *testing.T) {
	var spec lane.Spec
	spec.CPUs = lane.CPUs{Count: 2, SMT: lane.Isolate}
	spec.Memory = lane.Memory{Size: 1 << 30, Hugepages: map[string]quantity.Bytes{"2Mi": 4 << 20}}
	spec.Roles = map[string]int{"main": 1}
	claim, err := Lane{Spec: spec, Owns: 4}.claim()
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(claim)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"config":[{"opaque":{"driver":"isolane.dev","parameters":{"apiVersion":"isolane.dev/v1alpha1","kind":"Lane",` +
		`"spec":{"cpus":{"smt":"isolate"},"roles":{"main":1}}}}}],"requests":[{"exactly":{"capacity":{"requests":` +
		`{"cpus":"2","hugepages2Mi":"4194304","memory":"1073741824"}},"deviceClassName":"lane.isolane.dev"},"name":"lane"}]}`
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Error(d)
	}
}

// A pod with a lane asks the scheduler for the CPUs that it owns and its memory; one without asks for nothing. Both end by
// themselves.
func TestManifest(t *testing.T) {
	now := time.Unix(1000, 0)
	w := Workload{Name: "app", Programs: [][]string{{"/usr/bin/true"}}, Folders: []string{"/tmp/f"},
		Files: []string{"/usr/bin/isolane", "/opt/isolane"}, Until: now.Add(time.Minute)}
	for _, c := range []struct {
		lane  *Lane
		kinds string
		asks  string
	}{{nil, "Pod", "null"}, {&Lane{Spec: lane.Spec{CPUs: lane.CPUs{Count: 1},
		Memory: lane.Memory{Size: 1 << 30, Hugepages: map[string]quantity.Bytes{"2Mi": 4 << 20}}}, Owns: 2}, "ResourceClaimTemplate Pod",
		`{"claims":[{"name":"lane"}],"limits":{"hugepages-2Mi":"4194304"},"requests":{"cpu":"2","memory":"1073741824"}}`}} {
		w.Lane = c.lane
		text, err := Cluster{Node: "n", Image: "i:1"}.manifest(w, now)
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Items []struct {
				Kind string
				Spec struct {
					ActiveDeadlineSeconds int
					Containers            []struct {
						Resources    json.RawMessage
						Env          []struct{ Name, Value string }
						VolumeMounts []struct {
							MountPath string
							ReadOnly  bool
						}
					}
				}
			}
		}
		if err = json.Unmarshal(text, &list); err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, i := range list.Items {
			kinds = append(kinds, i.Kind)
		}
		pod := list.Items[len(list.Items)-1].Spec
		asks := string(pod.Containers[0].Resources)
		if asks == "" {
			asks = "null"
		}
		if got := strings.Join(kinds, " "); got != c.kinds || asks != c.asks || pod.ActiveDeadlineSeconds != 60 {
			t.Errorf("%s asks for %s, ends after %d s; want %s, %s, 60", got, asks, pod.ActiveDeadlineSeconds, c.kinds, c.asks)
		}
		if env := pod.Containers[0].Env; len(env) != 1 || env[0].Name != "PATH" || !strings.Contains(env[0].Value, "/usr/sbin:") {
			t.Errorf("environment %v: a server in /usr/sbin is not found", env)
		}
		write := map[string]bool{}
		for _, m := range pod.Containers[0].VolumeMounts {
			write[m.MountPath] = !m.ReadOnly
		}
		if at, has := write["/usr"]; at || !has || !write["/tmp/f"] || !write["/tmp"] || write["/opt/isolane"] {
			t.Errorf("mounts that may be written to: %v", write)
		}
		if at, has := write["/etc/passwd"]; at || !has {
			t.Error("the machine's users are not there to read: a server cannot change to its own")
		}
		if _, twice := write["/usr/bin/isolane"]; twice {
			t.Error("a file of /usr is mounted again")
		}
	}
}
