package pod

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// fake puts a kubectl of these cases of a shell's case on the PATH. What it was asked is in the file returned.
func fake(t *testing.T, cases string) (asked string) {
	t.Helper()
	dir := t.TempDir()
	asked = filepath.Join(dir, "asked")
	script := "#!/bin/sh\necho \"$*\" >>" + asked + "\ncase \"$*\" in\n" + cases + "\nesac\n"
	if err := os.WriteFile(filepath.Join(dir, Kubectl), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return asked
}

// A pod that does not run says why: by its events, or by what it printed before it ended.
func TestStartFails(t *testing.T) {
	for _, c := range []struct{ name, cases, want string }{
		{"waits", `*"get --output=json pod"*) echo '{"status": {"phase": "Pending"}}';;
			*"get events"*) echo -n "reason=Refused, asks for 3 CPUs";;`, "pod app: it does not run: context deadline exceeded: reason=Refused, asks for 3 CPUs"},
		{"ended", `*"get --output=json pod"*) echo '{"status": {"phase": "Failed", "reason": "Evicted", "message": "disk"}}';;`,
			"pod app: it has ended: Evicted disk"},
		{"refused", `create*) echo "forbidden: not yours" >&2; exit 1;;`, "kubectl create --filename=-: exit status 1: forbidden: not yours"},
		{"says nothing", `*"get --output=json pod"*) echo '{"status": {"phase": "Running", "podIP": "10.0.0.2", "containerStatuses": [
			{"containerID": "containerd://c0ffee", "state": {"running": {}}}]}}';; logs*) echo starting;;`,
			`pod app: expected it to print "ready", found "starting": context deadline exceeded`},
	} {
		t.Run(c.name, func(t *testing.T) {
			fake(t, c.cases)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := Cluster{Node: "n"}.Start(ctx, fstest.MapFS{}, Workload{Name: "app", Programs: [][]string{{"/bin/true"}},
				Ready: []string{"ready"}})
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

// A pod ends with the template of its claim.
func TestEnd(t *testing.T) {
	asked := fake(t, "")
	if err := (Pod{Name: "app"}).End(t.Context()); err != nil {
		t.Fatal(err)
	}
	said, err := os.ReadFile(asked)
	if want := "delete pod/app resourceclaimtemplate/app --ignore-not-found --wait\n"; err != nil || string(said) != want {
		t.Errorf("%v: asked %q, want %q", err, said, want)
	}
}

// The first process of a container is the one whose parent is outside of it.
func TestContainer(t *testing.T) {
	const cgroups = "3:cpuset:/kubepods/pod1/%s\n0::/\n"
	stat := func(pid, parent string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(pid + " (p) S " + parent + strings.Repeat(" 0", 48) + "\n")}
	}
	in := func(id string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(strings.Replace(cgroups, "%s", id, 1))}
	}
	root := fstest.MapFS{
		"proc/self/mounts":    {Data: []byte("cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n")},
		"proc/self/mountinfo": {Data: []byte("30 1 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n")},
		"proc/11/cgroup":      in("c0ffee"), "proc/11/stat": stat("11", "12"),
		"proc/12/cgroup": in("c0ffee"), "proc/12/stat": stat("12", "9"),
		"proc/13/cgroup": in("other"), "proc/13/stat": stat("13", "9"),
	}
	pid, group, err := container(root, "c0ffee")
	if err != nil || pid != 12 || group != "/sys/fs/cgroup/cpuset/kubepods/pod1/c0ffee" {
		t.Errorf("%d in %s: %v", pid, group, err)
	}
	for _, id := range []string{"", "unseen"} {
		if _, _, err = container(root, id); err == nil || !strings.Contains(err.Error(), "none of its processes is seen") {
			t.Errorf("%q: %v", id, err)
		}
	}
}
